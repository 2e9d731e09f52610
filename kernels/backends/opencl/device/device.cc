#include "kernels/backends/opencl/device/device.h"

#include <CL/cl_ext.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/opencl/device/handles.h"
#include "kernels/backends/opencl/device/program_files.h"

namespace runnel::opencl {
namespace {

template <typename T>
T Number(cl_device_id device, cl_device_info what) {
  T value = {};
  return clGetDeviceInfo(device, what, sizeof value, &value, nullptr) == CL_SUCCESS ? value : T{};
}

std::string Text(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  if (clGetDeviceInfo(device, what, 0, nullptr, &size) != CL_SUCCESS) return "";
  std::string text(size, '\0');
  if (clGetDeviceInfo(device, what, size, text.data(), nullptr) != CL_SUCCESS) return "";
  return std::string(absl::StripAsciiWhitespace(text.c_str()));
}

std::string PlatformName(cl_platform_id platform) {
  char name[256] = {};
  if (clGetPlatformInfo(platform, CL_PLATFORM_NAME, sizeof name - 1, name, nullptr) != CL_SUCCESS)
    return "?";
  return name;
}

// Of OpenCL 3.0's headers, which not everybody has.
constexpr cl_device_info kAllVersions = 0x1066;  // CL_DEVICE_OPENCL_C_ALL_VERSIONS
struct NamedVersion {
  cl_uint version;
  char name[64];
  int major() const { return static_cast<int>(version >> 22); }
};

// A driver of OpenCL 3.0 may call its language 1.2, the newest of which all is there.
bool TakesC3(cl_device_id device, absl::string_view language) {
  if (absl::StartsWith(language, "OpenCL C 3")) return true;
  size_t size = 0;
  if (clGetDeviceInfo(device, kAllVersions, 0, nullptr, &size) != CL_SUCCESS) return false;
  std::vector<NamedVersion> versions(size / sizeof(NamedVersion));
  if (versions.empty() ||
      clGetDeviceInfo(device, kAllVersions, size, versions.data(), nullptr) != CL_SUCCESS) {
    return false;
  }
  return std::any_of(versions.begin(), versions.end(),
                     [](const NamedVersion& one) { return one.major() >= 3; });
}

DeviceInfo InfoOf(cl_platform_id platform, cl_device_id id) {
  DeviceInfo info;
  info.platform = platform;
  info.id = id;
  info.type = Number<cl_device_type>(id, CL_DEVICE_TYPE);
  info.platform_name = PlatformName(platform);
  info.name = Text(id, CL_DEVICE_NAME);
  info.driver = Text(id, CL_DRIVER_VERSION);
  info.language = Text(id, CL_DEVICE_OPENCL_C_VERSION);
  info.takes_c3 = TakesC3(id, info.language);
  info.extensions = Text(id, CL_DEVICE_EXTENSIONS);
  info.has_compiler = Number<cl_bool>(id, CL_DEVICE_COMPILER_AVAILABLE) != 0;
  info.is_little_endian = Number<cl_bool>(id, CL_DEVICE_ENDIAN_LITTLE) != 0;
  info.shares_memory = Number<cl_bool>(id, CL_DEVICE_HOST_UNIFIED_MEMORY) != 0;
  info.compute_units = Number<cl_uint>(id, CL_DEVICE_MAX_COMPUTE_UNITS);
  info.max_work_group = static_cast<int64_t>(Number<size_t>(id, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  info.local_bytes = static_cast<int64_t>(Number<cl_ulong>(id, CL_DEVICE_LOCAL_MEM_SIZE));
  info.max_allocation = static_cast<int64_t>(Number<cl_ulong>(id, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
  if (Number<cl_bool>(id, CL_DEVICE_IMAGE_SUPPORT) != 0) {
    info.image_texels = static_cast<int64_t>(Number<size_t>(id, CL_DEVICE_IMAGE_MAX_BUFFER_SIZE));
  }
  info.memory_bytes = static_cast<int64_t>(Number<cl_ulong>(id, CL_DEVICE_GLOBAL_MEM_SIZE));
  if (info.Has("cl_khr_integer_dot_product")) {
    // The first of six booleans is of signed operands. An emulated dot product may be slower than
    // multiplications.
    struct {
      cl_bool is_signed, others[5];
    } accelerated = Number<decltype(accelerated)>(
        id, CL_DEVICE_INTEGER_DOT_PRODUCT_ACCELERATION_PROPERTIES_4x8BIT_PACKED_KHR);
    info.accelerates_dot = accelerated.is_signed != 0;
  }
  if (info.Has("cl_nv_device_attribute_query")) {
    info.nvidia_capability =
        static_cast<int>(10 * Number<cl_uint>(id, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV) +
                         Number<cl_uint>(id, CL_DEVICE_COMPUTE_CAPABILITY_MINOR_NV));
  }
  return info;
}

int Rank(const DeviceInfo& device) {
  if (device.type & CL_DEVICE_TYPE_GPU) return 0;
  if (device.type & CL_DEVICE_TYPE_ACCELERATOR) return 1;
  return 2;
}

bool IsNamed(const DeviceInfo& device, const std::string& part) {
  return absl::StrContains(
      absl::AsciiStrToLower(absl::StrCat(device.platform_name, "/", device.name)),
      absl::AsciiStrToLower(part));
}

bool Always(const DeviceInfo&) { return true; }
bool Never(const DeviceInfo&) { return false; }
bool HasKhr(const DeviceInfo& device) { return device.Has("cl_khr_integer_dot_product"); }
bool AcceleratesKhr(const DeviceInfo& device) { return device.accelerates_dot; }
bool HasArm(const DeviceInfo& device) { return device.Has("cl_arm_integer_dot_product_int8"); }
// dp4a came with compute capability 6.1.
bool HasNvidia(const DeviceInfo& device) { return device.nvidia_capability >= 61; }

// Best first.
constexpr DotRow kDots[] = {{"khr", "-DDOT_KHR", HasKhr, AcceleratesKhr},
                            {"arm", "-DDOT_ARM", HasArm, HasArm},
                            {"nvidia", "-DDOT_NVIDIA", HasNvidia, HasNvidia},
                            {"mad24", "-DDOT_MAD24", Always, Never},
                            {"widened", "-DDOT_WIDENED", Always, Always}};

struct ErrorRow {
  cl_int code;
  const char* name;
};
constexpr ErrorRow kErrors[] = {
    {CL_DEVICE_NOT_FOUND, "CL_DEVICE_NOT_FOUND"},
    {CL_DEVICE_NOT_AVAILABLE, "CL_DEVICE_NOT_AVAILABLE"},
    {CL_COMPILER_NOT_AVAILABLE, "CL_COMPILER_NOT_AVAILABLE"},
    {CL_MEM_OBJECT_ALLOCATION_FAILURE, "CL_MEM_OBJECT_ALLOCATION_FAILURE"},
    {CL_OUT_OF_RESOURCES, "CL_OUT_OF_RESOURCES"},
    {CL_OUT_OF_HOST_MEMORY, "CL_OUT_OF_HOST_MEMORY"},
    {CL_BUILD_PROGRAM_FAILURE, "CL_BUILD_PROGRAM_FAILURE"},
    {CL_MAP_FAILURE, "CL_MAP_FAILURE"},
    {CL_INVALID_VALUE, "CL_INVALID_VALUE"},
    {CL_INVALID_DEVICE, "CL_INVALID_DEVICE"},
    {CL_INVALID_CONTEXT, "CL_INVALID_CONTEXT"},
    {CL_INVALID_COMMAND_QUEUE, "CL_INVALID_COMMAND_QUEUE"},
    {CL_INVALID_MEM_OBJECT, "CL_INVALID_MEM_OBJECT"},
    {CL_INVALID_KERNEL_NAME, "CL_INVALID_KERNEL_NAME"},
    {CL_INVALID_KERNEL_ARGS, "CL_INVALID_KERNEL_ARGS"},
    {CL_INVALID_ARG_SIZE, "CL_INVALID_ARG_SIZE"},
    {CL_INVALID_WORK_GROUP_SIZE, "CL_INVALID_WORK_GROUP_SIZE"},
    {CL_INVALID_BUFFER_SIZE, "CL_INVALID_BUFFER_SIZE"},
    {CL_PLATFORM_NOT_FOUND_KHR, "CL_PLATFORM_NOT_FOUND_KHR"},
};

}  // namespace

const char* NameOfError(cl_int code) {
  for (const ErrorRow& row : kErrors) {
    if (row.code == code) return row.name;
  }
  return "an error without a name";
}

Options OptionsOf(const BackendSettings& settings) {
  const auto text = [&](absl::string_view name) {
    return std::string(settings.options.Get("opencl", name));
  };
  std::string programs = text("programs");
  if (programs.empty()) programs = DefaultProgramFolder();
  if (programs == "off") programs.clear();
  return {text("device"),
          text("dot"),
          text("memory"),
          text("tile"),
          text("weights"),
          text("activations"),
          settings.options.Seconds("opencl", "tune_s", -1),
          settings.device_memory_bytes,
          settings.options.Seconds("opencl", "stall_s", -1),
          std::move(programs)};
}

bool DeviceInfo::Has(absl::string_view extension) const {
  for (absl::string_view one : absl::StrSplit(extensions, ' ')) {
    if (one == extension) return true;
  }
  return false;
}

std::string DescriptionOf(const DeviceInfo& device) {
  return absl::StrCat(device.name, " (", device.platform_name, "), driver ", device.driver, ", ",
                      device.language, ", ", device.compute_units,
                      device.compute_units == 1 ? " compute unit, " : " compute units, ",
                      device.memory_bytes >> 20, " MiB");
}

absl::StatusOr<std::vector<DeviceInfo>> ListDevices() {
  cl_uint count = 0;
  const cl_int found = clGetPlatformIDs(0, nullptr, &count);
  if (found != CL_SUCCESS || count == 0) {
    return absl::UnavailableError(absl::StrCat("no OpenCL driver is installed (clGetPlatformIDs: ",
                                               found == CL_SUCCESS ? "none" : NameOfError(found),
                                               ")"));
  }
  std::vector<cl_platform_id> platforms(count);
  clGetPlatformIDs(count, platforms.data(), nullptr);
  std::vector<DeviceInfo> devices;
  std::vector<std::string> names;
  for (cl_platform_id platform : platforms) {
    names.push_back(PlatformName(platform));
    cl_uint of_platform = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &of_platform) != CL_SUCCESS)
      continue;
    std::vector<cl_device_id> ids(of_platform);
    if (of_platform == 0 || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, of_platform, ids.data(),
                                           nullptr) != CL_SUCCESS) {
      continue;
    }
    for (cl_device_id id : ids) devices.push_back(InfoOf(platform, id));
  }
  if (!devices.empty()) return devices;
  return absl::UnavailableError(
      absl::StrCat("no device of the OpenCL driver ", absl::StrJoin(names, ", ")));
}

absl::StatusOr<DeviceInfo> ChooseDevice(std::vector<DeviceInfo> devices,
                                        const std::string& wanted) {
  std::stable_sort(devices.begin(), devices.end(),
                   [](const DeviceInfo& a, const DeviceInfo& b) { return Rank(a) < Rank(b); });
  std::vector<std::string> names;
  for (const DeviceInfo& device : devices) {
    if (IsNamed(device, wanted)) return device;
    names.push_back(absl::StrCat(device.platform_name, "/", device.name));
  }
  return absl::NotFoundError(absl::StrCat("no device with opencl.device '", wanted,
                                          "' in its name; there is ", absl::StrJoin(names, ", ")));
}

absl::Status CheckDevice(const DeviceInfo& device) {
  const auto lacks = [&](const auto&... what) {
    return absl::FailedPreconditionError(absl::StrCat("device ", device.name, " ", what...));
  };
  constexpr int64_t kWorkGroup = 64;
  constexpr int64_t kLocalBytes = 8 << 10;
  if (!device.has_compiler) return lacks("has no compiler for kernels");
  if (!device.is_little_endian) return lacks("is not little-endian");
  if (absl::StartsWith(device.language, "OpenCL C 1.0") ||
      absl::StartsWith(device.language, "OpenCL C 1.1")) {
    return lacks("takes ", device.language, ", needs 1.2; install a newer driver");
  }
  if (device.max_work_group < kWorkGroup) {
    return lacks("is too small: work-groups of ", device.max_work_group, ", needs ", kWorkGroup);
  }
  if (device.local_bytes < kLocalBytes) {
    return lacks("is too small: ", device.local_bytes, " bytes of local memory, needs ",
                 kLocalBytes);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<const DotRow*>> ChooseDots(const DeviceInfo& device,
                                                      absl::string_view wanted) {
  std::vector<absl::string_view> there;
  std::vector<const DotRow*> chosen;
  for (const DotRow& row : kDots) {
    if (row.is_there(device)) there.push_back(row.name);
    if (wanted.empty() ? row.is_fast(device) : row.name == wanted && row.is_there(device))
      chosen.push_back(&row);
  }
  if (!chosen.empty()) return chosen;
  return absl::InvalidArgumentError(absl::StrCat("opencl.dot '", wanted, "': device ", device.name,
                                                 " has ", absl::StrJoin(there, ", ")));
}

const char* LanguageOptionOf(const DeviceInfo& device, const DotRow& dot) {
  // Its function is one of OpenCL C 3.0.
  return device.takes_c3 && dot.name == "khr" ? "-cl-std=CL3.0" : "-cl-std=CL1.2";
}

}  // namespace runnel::opencl
