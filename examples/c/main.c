/* Tells the digit in an image of 28 by 28 pixels, as a PGM file of numbers. */
#include "digits.h"
#include <stdio.h>

/* The model runs in this; there is no allocator. */
static uint8_t memory[digits_MEMORY_BYTES] __attribute__((aligned(64)));

int main(int count, char **arguments) {
  float image[28 * 28], scores[10];
  int width, height, brightest, at, digit, best = 0;
  int32_t code;
  FILE *file = count == 2 ? fopen(arguments[1], "r") : NULL;
  if (file == NULL || fscanf(file, "P2 %d %d %d", &width, &height, &brightest) != 3 || width != 28 || height != 28) {
    fprintf(stderr, "usage: %s IMAGE.pgm, of 28 by 28 numbers\n", arguments[0]);
    return 2;
  }
  for (at = 0; at < 28 * 28; at++) {
    if (fscanf(file, "%f", &image[at]) != 1) return 2;
  }
  fclose(file);

  code = digits_run(image, scores, memory);
  if (code != 0) {
    fprintf(stderr, "%s\n", digits_message(code));
    return 1;
  }
  for (digit = 1; digit < 10; digit++) {
    if (scores[digit] > scores[best]) best = digit;
  }
  printf("This is a %d\n", best);
  return 0;
}
