#include "proto/base/host/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace runnel {
namespace {

#if defined(__x86_64__)
bool Probe(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
      return true;
    case Isa::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c") && __builtin_cpu_supports("popcnt");
    case Isa::kAvxVnni: {
      // Not among the compiler's names: leaf 7, sub-leaf 1, EAX bit 4.
      unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
      return Probe(Isa::kAvx2) && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 &&
             (eax & (1u << 4)) != 0;
    }
    case Isa::kAvx512:
      return Probe(Isa::kAvx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
    case Isa::kAvx512Vnni:
      return Probe(Isa::kAvx512) && __builtin_cpu_supports("avx512vnni");
    default:
      return false;
  }
}
#elif defined(__aarch64__)
bool Probe(Isa isa) {
  switch (isa) {
    case Isa::kPortable:
    case Isa::kNeon:
      return true;
    case Isa::kNeonDotprod:
      return (getauxval(AT_HWCAP) & (1ul << 20)) != 0;  // HWCAP_ASIMDDP
    case Isa::kNeonI8mm:
      return (getauxval(AT_HWCAP2) & (1ul << 13)) != 0;  // HWCAP2_I8MM
    default:
      return false;
  }
}
#else
bool Probe(Isa isa) { return isa == Isa::kPortable; }
#endif

}  // namespace

bool HostHas(Isa isa) {
  static const unsigned found = [] {
    unsigned bits = 0;
    for (int i = 0; i <= static_cast<int>(Isa::kNeonI8mm); ++i) {
      if (Probe(static_cast<Isa>(i))) bits |= 1u << i;
    }
    return bits;
  }();
  return (found >> static_cast<int>(isa) & 1u) != 0;
}

}  // namespace runnel
