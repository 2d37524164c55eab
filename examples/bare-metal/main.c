/* A digit classifier without an operating system: on a Cortex-M4 (QEMU's board mps2-an386) or a 32-bit RISC-V (its board virt). */
#include "digits.h"
#include "image.h"

/* The model runs in this; there is no allocator. */
static uint64_t memory[digits_MEMORY_BYTES / 8];

/* Semihosting: the debugger, or QEMU, does what a board cannot. */
static void ask(int what, const void *argument) {
#if defined(__arm__)
  register int r0 __asm__("r0") = what;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
#elif defined(__riscv)
  register int a0 __asm__("a0") = what;
  register const void *a1 __asm__("a1") = argument;
  __asm__ volatile(
      ".option push\n .option norvc\n .balign 16\n slli x0, x0, 0x1f\n ebreak\n srai x0, x0, 7\n .option pop"
      : "+r"(a0)
      : "r"(a1)
      : "memory");
#else
#error "how does this processor ask its debugger?"
#endif
}

static void print(const char *text) { ask(0x04, text); }

static _Noreturn void quit(int failed) {
  ask(0x18, (const void *)(failed ? 0x20023 : 0x20026));
  for (;;) {
  }
}

static void print_number(int32_t number) {
  char text[12], *at = text + sizeof text - 1;
  uint32_t left = number < 0 ? -(uint32_t)number : (uint32_t)number;
  *at = 0;
  do *--at = (char)('0' + left % 10);
  while ((left /= 10) != 0);
  if (number < 0) *--at = '-';
  print(at);
}

static _Noreturn void classify(void) {
  float scores[10];
  int32_t code;
  int digit, best = 0;
  code = digits_run(image, scores, memory);
  if (code != 0) {
    print(digits_message(code));
    quit(1);
  }
  for (digit = 0; digit < 10; digit++) {
    if (scores[digit] > scores[best]) best = digit;
    print_number((int32_t)(scores[digit] * 1000.0f));
    print("\n");
  }
  print("This is a ");
  print_number(best);
  print("\n");
  quit(0);
}

static _Noreturn void fault(void) {
  print("fault\n");
  quit(1);
}

/* What happens first. */
extern uint8_t stack_top[];

#if defined(__arm__)
static _Noreturn void reset(void) {
  /* Let the program use the floating-point unit. */
  *(volatile uint32_t *)0xE000ED88 |= 0xF << 20;
  __asm__ volatile("dsb\n isb");
  classify();
}

/* The first stack pointer, then where to go on reset, NMI and faults. */
__attribute__((section(".start"), used)) const void *const vectors[] = {
    stack_top, (const void *)reset, (const void *)fault, (const void *)fault,
};
#elif defined(__riscv)
__attribute__((section(".start"), naked, used)) void start(void) {
  __asm__ volatile(".option arch, +zicsr\n la sp, stack_top\n la t0, %0\n csrw mtvec, t0\n j %1" : : "i"(fault), "i"(classify));
}
#endif
