#pragma once

// What instruction sets this machine and its operating system can run. Probed once; any thread.

namespace runnel::cpu {

struct CpuFeatures {
  bool avx2 = false;  // with FMA
  bool avx_vnni = false;
  bool avx512 = false;  // F, BW, DQ, VL
  bool avx512_vnni = false;
  bool neon = false;  // Advanced SIMD of arm64
  bool neon_dotprod = false;
  bool neon_i8mm = false;
  bool neon_fp16 = false;
};

const CpuFeatures& HostFeatures();

}  // namespace runnel::cpu
