/* Runs a model once on QEMU's board mps2-an386 and tells what it took: instructions, bytes of the stack, and the results as bits. */
#include "model.h"
#include <stdint.h>

extern uint8_t stack_bottom[], stack_top[];

/* Semihosting: QEMU does what a board cannot. */
static void ask(int what, const void *argument) {
  register int r0 __asm__("r0") = what;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
}

static void print(uint32_t number) {
  char text[12], *at = text + sizeof text;
  *--at = 0;
  *--at = '\n';
  do *--at = (char)('0' + number % 10);
  while ((number /= 10) != 0);
  ask(0x04, at);
}

/* The timer of the board counts down, 25 times in a microsecond of virtual time. */
#define CONTROL (*(volatile uint32_t *)0x40000000)
#define VALUE (*(volatile uint32_t *)0x40000004)
#define RELOAD (*(volatile uint32_t *)0x40000008)
#define UNUSED 0xA5A5A5A5u

static _Noreturn void start(void) {
  static float output[OUTPUTS];
  uint32_t before, ticks, *at;
  /* Let the program use the floating-point unit. */
  *(volatile uint32_t *)0xE000ED88 |= 0xF << 20;
  __asm__ volatile("dsb\n isb");
  /* What the model does not overwrite of this, it did not use. */
  for (at = (uint32_t *)stack_bottom; at < (uint32_t *)__builtin_frame_address(0) - 64; at++) {
    *(volatile uint32_t *)at = UNUSED;
  }
  RELOAD = VALUE = 0xFFFFFFFFu;
  CONTROL = 1;
  before = VALUE;
  infer(input, output);
  ticks = before - VALUE;
  for (at = (uint32_t *)stack_bottom; *at == UNUSED; at++) {
  }
  print(ticks);
  print((uint32_t)(stack_top - (uint8_t *)at));
  for (at = (uint32_t *)output; at < (uint32_t *)output + OUTPUTS; at++) print(*at);
  ask(0x18, (const void *)0x20026);
  for (;;) {
  }
}

static _Noreturn void fault(void) {
  ask(0x04, "fault\n");
  ask(0x18, (const void *)0x20023);
  for (;;) {
  }
}

__attribute__((section(".start"), used)) const void *const vectors[] = {
    stack_top, (const void *)start, (const void *)fault, (const void *)fault,
};
