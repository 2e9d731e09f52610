#include "kernels/backends/hexagon/device/device_probe.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/base/status_macros.h"

namespace runnel::hexagon {
namespace {

// Attributes of a DSP.
enum Attribute : uint32_t {
  kDomain = 0,
  kUnsigned = 1,
  kVectors128 = 3,
  kVtcmPageBytes = 4,
  kVtcmPages = 5,
  kArch = 6
};

absl::StatusOr<uint32_t> Ask(const VendorLibrary& library, Attribute attribute) {
  struct {
    uint32_t domain = kComputeDsp;
    uint32_t attribute = 0;
    uint32_t value = 0;
  } query;
  query.attribute = attribute;
  const int error = library.calls.control(kControlCapability, &query, sizeof(query));
  if (error == 0) return query.value;
  return absl::UnavailableError(absl::StrCat("the DSP does not tell its capability ",
                                             static_cast<uint32_t>(attribute), ": ",
                                             DescribeVendorError(error)));
}

}  // namespace

absl::StatusOr<DspCapabilities> QueryDsp(const VendorLibrary& library) {
  RUNNEL_ASSIGN_OR_RETURN(const uint32_t domain, Ask(library, kDomain));
  if (domain == 0) return absl::UnavailableError("this device has no compute DSP");
  RUNNEL_ASSIGN_OR_RETURN(const uint32_t takes_unsigned, Ask(library, kUnsigned));
  if (takes_unsigned == 0) return absl::UnavailableError("the DSP takes no unsigned modules");
  DspCapabilities dsp;
  RUNNEL_ASSIGN_OR_RETURN(const uint32_t arch, Ask(library, kArch));
  // 0x8c73: the low byte reads 73.
  dsp.arch = static_cast<int>((arch >> 4 & 15) * 10 + (arch & 15));
  RUNNEL_ASSIGN_OR_RETURN(const uint32_t units, Ask(library, kVectors128));
  dsp.vector_units = static_cast<int>(units);
  if (units == 0) return absl::UnavailableError("the DSP has no vectors of 128 bytes");
  RUNNEL_ASSIGN_OR_RETURN(const uint32_t page_bytes, Ask(library, kVtcmPageBytes));
  RUNNEL_ASSIGN_OR_RETURN(const uint32_t pages, Ask(library, kVtcmPages));
  dsp.vtcm_bytes = page_bytes * pages;
  constexpr uint32_t kLeastBytes = 32 << 10;
  if (dsp.vtcm_bytes >= kLeastBytes) return dsp;
  return absl::UnavailableError(absl::StrCat("the DSP has ", dsp.vtcm_bytes, " bytes of VTCM, and ",
                                             kLeastBytes, " are needed"));
}

absl::StatusOr<std::string> ChooseDspObject(const std::string& folder, int arch) {
  constexpr absl::string_view kBegin = "librunnel_dsp_v", kEnd = ".so";
  int best = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    absl::string_view number = name;
    int version = 0;
    if (!absl::ConsumePrefix(&number, kBegin) || !absl::ConsumeSuffix(&number, kEnd)) continue;
    if (!absl::SimpleAtoi(number, &version) || version > arch || version <= best) continue;
    best = version;
  }
  if (best > 0) return absl::StrCat(kBegin, best, kEnd);
  return absl::NotFoundError(
      absl::StrCat(folder, " has no ", kBegin, "NN", kEnd, " for a DSP of version ", arch));
}

}  // namespace runnel::hexagon
