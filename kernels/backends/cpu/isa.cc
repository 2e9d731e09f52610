#include "kernels/backends/cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace runnel::cpu {
namespace {

#if defined(__x86_64__)
CpuFeatures Probe() {
  CpuFeatures found;
  found.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  found.avx512 = found.avx2 && __builtin_cpu_supports("avx512f") &&
                 __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                 __builtin_cpu_supports("avx512vl");
  found.avx512_vnni = found.avx512 && __builtin_cpu_supports("avx512vnni");
  // Not among the compiler's names: leaf 7, sub-leaf 1, EAX bit 4.
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0) {
    found.avx_vnni = found.avx2 && (eax & (1u << 4)) != 0;
  }
  return found;
}
#elif defined(__aarch64__)
CpuFeatures Probe() {
  CpuFeatures found;
  const unsigned long one = getauxval(AT_HWCAP), two = getauxval(AT_HWCAP2);
  found.neon = true;
  found.neon_fp16 = (one & (1ul << 10)) != 0;     // HWCAP_ASIMDHP
  found.neon_dotprod = (one & (1ul << 20)) != 0;  // HWCAP_ASIMDDP
  found.neon_i8mm = (two & (1ul << 13)) != 0;     // HWCAP2_I8MM
  return found;
}
#else
CpuFeatures Probe() { return {}; }
#endif

}  // namespace

const CpuFeatures& HostFeatures() {
  static const CpuFeatures features = Probe();
  return features;
}

}  // namespace runnel::cpu
