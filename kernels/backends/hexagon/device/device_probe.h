#pragma once

// The version of this device's DSP, and the shared object that fits it.

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backends/hexagon/device/vendor_library.h"

namespace runnel::hexagon {

struct DspCapabilities {
  int arch = 0;          // 73: Hexagon V73
  int vector_units = 0;  // vector units of 128 bytes
  uint32_t vtcm_bytes = 0;
};

// Unavailable, one line: there is no compute DSP, or it takes no unsigned modules, or has no
// vectors of 128 bytes or no VTCM.
absl::StatusOr<DspCapabilities> QueryDsp(const VendorLibrary& library);

// Name of the newest librunnel_dsp_vNN.so in the folder with NN <= arch. NotFound, one line.
absl::StatusOr<std::string> ChooseDspObject(const std::string& folder, int arch);

}  // namespace runnel::hexagon
