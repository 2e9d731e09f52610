// The entry of a program of Android, whose NDK has it: the C library gets the words that the kernel
// left on the stack, calls main and ends the process. Never on a phone.

#include <stddef.h>

typedef void (*Function)(void);

// Functions to call before and after main; the linker gives the ends of each list.
struct StartAndEnd {
  Function* before_start;
  Function* start;
  Function* end;
};

int main(int count, char** words);
void __libc_init(void* stack, void (*unused)(void), int (*main)(int, char**),
                 const struct StartAndEnd* functions);

int* __errno(void);

// The name under which the headers of glibc, which this is compiled with, know it.
int* __errno_location(void);
int* __errno_location(void) { return __errno(); }

// Lists of none. Android's C library steps over the first entry of each and ends at null.
static Function kNone[] = {(Function)-1, NULL};

__attribute__((noreturn, used)) static void Start(void* stack) {
  const struct StartAndEnd functions = {kNone, kNone, kNone};
  __libc_init(stack, NULL, main, &functions);
  __builtin_unreachable();
}

#ifdef __aarch64__
__asm__(
    ".global _start\n"
    ".type _start, %function\n"
    "_start:\n"
    "  mov x29, #0\n"
    "  mov x30, #0\n"
    "  mov x0, sp\n"
    "  b Start\n");
#endif
