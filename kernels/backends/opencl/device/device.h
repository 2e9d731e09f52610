#pragma once

// The OpenCL devices of this machine, and their facts for the backend.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/opencl/device/handles.h"

namespace runnel::opencl {

// What a user may force: members as the rows of backend opencl say (proto/base/backend_options.cc),
// a text that is empty where nothing is given.
struct Options {
  std::string device;  // part of the name of a device or platform; empty: a GPU before others
  std::string dot;     // DotRow::name; empty: by what the device says of itself
  std::string memory;  // "shared" or "copied"; empty: likewise
  std::string tile;    // tile of all products: ToText(Tile); empty: as tuned, or by rule
  // Weights as products of fp32 read them: "fp16", rounded to halves, or "fp32"; empty: fp32.
  // Products of integers ignore it.
  std::string weights;
  // Activations as the forward of floating-point recipes keeps them for the backward: likewise.
  std::string activations;
  double tune_seconds = -1;  // of the search at the first start; -1: as usual for the device
  // --device-memory-mb: limit of all buffers together; 0: the device's memory.
  int64_t memory_limit_bytes = 0;
  double stall_seconds = -1;  // of a driver that hangs; 0: no limit; -1: as usual for the device
  std::string programs;       // folder of built programs; empty: none are kept
};
Options OptionsOf(const BackendSettings& settings);

struct DeviceInfo {
  cl_platform_id platform = nullptr;
  cl_device_id id = nullptr;
  cl_device_type type = 0;
  std::string platform_name;
  std::string name;
  std::string driver;
  std::string language;    // "OpenCL C 1.2 ..."
  bool takes_c3 = false;   // OpenCL C 3.0, which need not be the version in `language`
  std::string extensions;  // separated by spaces
  bool has_compiler = false;
  bool is_little_endian = false;
  bool shares_memory = false;    // whether host and device share memory
  bool accelerates_dot = false;  // for four signed bytes, by cl_khr_integer_dot_product
  int nvidia_capability = 0;     // 61: 6.1; 0: another maker's
  int64_t compute_units = 0;
  int64_t max_work_group = 0;
  int64_t local_bytes = 0;
  int64_t max_allocation = 0;
  int64_t memory_bytes = 0;
  int64_t image_texels = 0;  // texels of a buffer that is read as an image; 0: it has no images

  bool Has(absl::string_view extension) const;
};

// "NAME (PLATFORM), driver D, OpenCL C 1.2, 4 compute units, 2048 MiB".
std::string DescriptionOf(const DeviceInfo& device);

// Unavailable, one line: no driver is installed, or it has no device.
absl::StatusOr<std::vector<DeviceInfo>> ListDevices();
// The one that the option names, or the best. NotFound lists what there is.
absl::StatusOr<DeviceInfo> ChooseDevice(std::vector<DeviceInfo> devices, const std::string& wanted);
// FailedPrecondition: names the ability that the device lacks.
absl::Status CheckDevice(const DeviceInfo& device);

// A way of kernels to multiply four pairs of int8 and add the products.
struct DotRow {
  absl::string_view name;
  const char* build_option;
  bool (*is_there)(const DeviceInfo& device);
  // Whether it is the one to take; the last row always is.
  bool (*is_fast)(const DeviceInfo& device);
};
// The fast ones, best first, or the one that `wanted` names. InvalidArgument lists those of the
// device.
absl::StatusOr<std::vector<const DotRow*>> ChooseDots(const DeviceInfo& device,
                                                      absl::string_view wanted);
// -cl-std=... for products with this row.
const char* LanguageOptionOf(const DeviceInfo& device, const DotRow& dot);

}  // namespace runnel::opencl
