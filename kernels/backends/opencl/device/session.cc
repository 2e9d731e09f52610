#include "kernels/backends/opencl/device/session.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/backends/lost_backend.h"
#include "kernels/backends/opencl/device/sources.h"
#include "proto/base/status_macros.h"

namespace runnel::opencl {
namespace {

absl::StatusOr<bool> SharesMemory(const DeviceInfo& device, const std::string& wanted) {
  if (wanted.empty()) return device.shares_memory;
  if (wanted == "copied") return false;
  if (wanted == "shared" && device.shares_memory) return true;
  return absl::InvalidArgumentError(
      absl::StrCat("opencl.memory '", wanted, "': device ", device.name, " has ",
                   device.shares_memory ? "copied, shared" : "copied"));
}

std::string BuildLog(cl_program program, cl_device_id device) {
  size_t size = 0;
  if (clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size) != CL_SUCCESS)
    return "";
  std::string log(size, '\0');
  clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, log.data(), nullptr);
  return log.c_str();
}

// The first line that speaks of an error, else the first one.
std::string ErrorLine(const std::string& log) {
  const std::vector<std::string> lines = absl::StrSplit(log, '\n', absl::SkipWhitespace());
  for (const std::string& line : lines) {
    if (absl::StrContains(line, "error")) return line;
  }
  return lines.empty() ? "the compiler does not say why" : lines.front();
}

std::string SourceOf(ProgramId::Source source) {
  switch (source) {
    case ProgramId::Source::kIntegers:
      return absl::StrCat(kPreludeSource, kElementsSource, kCodesSource, kPoolsSource, kStepSource);
    case ProgramId::Source::kFloats:
      return absl::StrCat(kPreludeSource, kFloatsSource, kGridsSource);
    case ProgramId::Source::kWinograd:
      return absl::StrCat(kPreludeSource, kProductSource, kWinogradSource);
    case ProgramId::Source::kDepthwise:
      return absl::StrCat(kPreludeSource, kProductSource, kDepthwiseSource);
    case ProgramId::Source::kProduct:
      break;
  }
  return absl::StrCat(kPreludeSource, kProductSource);
}

// All that the built program depends on.
std::string SubjectOf(const DeviceInfo& device, const std::string& source,
                      const std::string& options) {
  return absl::StrCat(DescriptionOf(device), "\n", device.extensions, "\n", options, "\n", source);
}

// Null: none is kept, or the driver does not take it.
Handle<cl_program> TakeKept(const Session& session, const std::string& subject,
                            const std::string& options) {
  const std::optional<std::string> kept = session.program_files().Load(subject);
  if (!kept.has_value()) return nullptr;
  const auto* bytes = reinterpret_cast<const unsigned char*>(kept->data());
  const size_t size = kept->size();
  const cl_device_id id = session.device().id;
  cl_int code = CL_SUCCESS;
  Handle<cl_program> program(
      clCreateProgramWithBinary(session.context(), 1, &id, &size, &bytes, nullptr, &code));
  if (code != CL_SUCCESS) return nullptr;
  code = clBuildProgram(program.get(), 1, &id, options.c_str(), nullptr, nullptr);
  return code == CL_SUCCESS ? std::move(program) : nullptr;
}

void Keep(const ProgramFiles& files, const std::string& subject, cl_program program) {
  size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, nullptr) !=
          CL_SUCCESS ||
      size == 0) {
    return;
  }
  std::string bytes(size, '\0');
  auto* at = reinterpret_cast<unsigned char*>(bytes.data());
  if (clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof at, &at, nullptr) == CL_SUCCESS)
    files.Keep(subject, bytes);
}

}  // namespace

absl::StatusOr<Handle<cl_program>> Compile(Session& session, const std::string& source,
                                           const std::string& options) {
  const DeviceInfo& device = session.device();
  const auto refuse = [&](cl_int code, const std::string& why) -> absl::Status {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", device.name, " (driver ", device.driver,
                     ") does not compile kernels: ", NameOfError(code), ": ", why));
  };
  const ProgramFiles& files = session.program_files();
  const std::string subject = files.keeps() ? SubjectOf(device, source, options) : "";
  if (files.keeps()) {
    if (Handle<cl_program> kept = TakeKept(session, subject, options); kept != nullptr) return kept;
  }
  const char* text = source.c_str();
  cl_int code = CL_SUCCESS;
  Handle<cl_program> program(
      clCreateProgramWithSource(session.context(), 1, &text, nullptr, &code));
  // A driver that crashes over a text takes its host with it: nothing is known of the text.
  const auto is_lost = [&code] { return code == CL_DEVICE_NOT_AVAILABLE; };
  if (is_lost()) return session.Check(code, "clCreateProgramWithSource");
  if (code != CL_SUCCESS) return refuse(code, "clCreateProgramWithSource");
  code = clBuildProgram(program.get(), 1, &device.id, options.c_str(), nullptr, nullptr);
  if (is_lost()) return session.Check(code, "clBuildProgram");
  if (code != CL_SUCCESS) return refuse(code, ErrorLine(BuildLog(program.get(), device.id)));
  if (files.keeps()) Keep(files, subject, program.get());
  return program;
}

DriverWatchOptions WatchOptionsOf(const Options& options, const DeviceInfo& device) {
  DriverWatchOptions watch;
  const bool is_processor = (device.type & CL_DEVICE_TYPE_CPU) != 0;
  if (is_processor) watch.stall = std::chrono::milliseconds(0);
  if (options.stall_seconds >= 0)
    watch.stall = std::chrono::milliseconds(static_cast<int64_t>(options.stall_seconds * 1e3));
  return watch;
}

uint64_t KernelSourceHash() {
  // FNV-1a: the same everywhere.
  uint64_t hash = 0xcbf29ce484222325u;
  for (const ProgramId::Source source :
       {ProgramId::Source::kIntegers, ProgramId::Source::kFloats, ProgramId::Source::kProduct,
        ProgramId::Source::kDepthwise, ProgramId::Source::kWinograd}) {
    for (const char c : SourceOf(source))
      hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  return hash;
}

absl::StatusOr<std::shared_ptr<Session>> Session::Open(const Options& options,
                                                       std::shared_ptr<DeviceBudget> budget) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<DeviceInfo> devices, ListDevices());
  RUNNEL_ASSIGN_OR_RETURN(DeviceInfo device, ChooseDevice(std::move(devices), options.device));
  RUNNEL_RETURN_IF_ERROR(CheckDevice(device));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<const DotRow*> dots, ChooseDots(device, options.dot));
  RUNNEL_ASSIGN_OR_RETURN(const bool shares_memory, SharesMemory(device, options.memory));
  const Halves halves = {options.weights == "fp16", options.activations == "fp16"};
  RUNNEL_ASSIGN_OR_RETURN(ChosenTiles tiles, ForcedTiles(options.tile, device));
  std::shared_ptr<Session> session(new Session(std::move(device), options, shares_memory, halves));
  session->chosen_tiles_ = std::move(tiles);
  session->budget_ = budget != nullptr ? std::move(budget)
                                       : std::make_shared<DeviceBudget>(session->device_,
                                                                        options.memory_limit_bytes);
  const cl_device_id id = session->device_.id;
  const cl_context_properties properties[] = {
      CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(session->device_.platform), 0};
  cl_int code = CL_SUCCESS;
  session->context_.reset(clCreateContext(properties, 1, &id, nullptr, nullptr, &code));
  RUNNEL_RETURN_IF_ERROR(session->Check(code, "clCreateContext"));
  session->queue_.reset(clCreateCommandQueue(session->context(), id, 0, &code));
  RUNNEL_RETURN_IF_ERROR(session->Check(code, "clCreateCommandQueue"));
  RUNNEL_RETURN_IF_ERROR(session->TakeDot(dots));
  return session;
}

absl::Status Session::Check(cl_int code, absl::string_view what) {
  if (code == CL_SUCCESS) return lost_;
  if (lost_.ok()) {
    lost_ = MarkLostBackend(absl::UnavailableError(absl::StrCat(
                                "backend opencl: device ", device_.name, " is lost: ", what, ": ",
                                NameOfError(code), " (", code, ")")),
                            "opencl");
  }
  return lost_;
}

absl::Status Session::TakeDot(const std::vector<const DotRow*>& dots) {
  for (dot_ = dots.front(); dot_ != dots.back();) {
    // A device may list what its compiler does not know, or knows in another language alone.
    const absl::Status built = Build({ProgramId::Source::kProduct});
    if (built.ok() || !lost_.ok()) return built;
    absl::StrAppend(&rejected_dots_, rejected_dots_.empty() ? "" : "; ", dot_->name, ": ",
                    built.message());
    dot_ = *(std::find(dots.begin(), dots.end(), dot_) + 1);
  }
  return absl::OkStatus();
}

std::string Session::BuildOptionsOf(const ProgramId& program) const {
  std::string options = "-cl-std=CL1.2";
  const bool is_depthwise = program.source == ProgramId::Source::kDepthwise;
  const bool is_winograd = program.source == ProgramId::Source::kWinograd;
  if (is_depthwise || is_winograd || program.source == ProgramId::Source::kProduct) {
    if (!program.is_float) options = LanguageOptionOf(device_, *dot_);
    absl::StrAppend(&options, " ", program.is_float ? "-DFLOATS" : dot_->build_option,
                    opencl::BuildOptionsOf(program.tile));
    if (program.is_float && halves_.weights) absl::StrAppend(&options, " -DHALF_WEIGHTS");
    if (is_depthwise) absl::StrAppend(&options, " -DDEPTHWISE");
    if (is_winograd) absl::StrAppend(&options, " -DWINOGRAD");
    if (program.gives_codes) absl::StrAppend(&options, " -DCODES");
  }
  const bool is_float = program.is_float || program.source == ProgramId::Source::kFloats;
  if (is_float && halves_.activations) absl::StrAppend(&options, " -DHALF_ACTIVATIONS");
  return options;
}

absl::Status Session::Build(const ProgramId& program) {
  if (programs_.count(program) > 0) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(Handle<cl_program> built,
                          Compile(*this, SourceOf(program.source), BuildOptionsOf(program)));
  programs_[program] = std::move(built);
  return absl::OkStatus();
}

absl::StatusOr<cl_kernel> Session::KernelOf(const ProgramId& program, const char* name) {
  Handle<cl_kernel>& kernel = kernels_[{program, name}];
  if (kernel == nullptr) {
    cl_int code = CL_SUCCESS;
    kernel.reset(clCreateKernel(programs_.at(program).get(), name, &code));
    RUNNEL_RETURN_IF_ERROR(Check(code, absl::StrCat("clCreateKernel(", name, ")")));
  }
  return kernel.get();
}

absl::StatusOr<Session::GroupSizes> Session::GroupSizesOf(const ProgramId& program,
                                                          const char* name) {
  RUNNEL_ASSIGN_OR_RETURN(const cl_kernel kernel, KernelOf(program, name));
  const auto ask = [&](cl_kernel_work_group_info what) -> int64_t {
    size_t value = 0;
    const cl_int code =
        clGetKernelWorkGroupInfo(kernel, device_.id, what, sizeof value, &value, nullptr);
    return code == CL_SUCCESS ? static_cast<int64_t>(value) : 0;
  };
  return GroupSizes{ask(CL_KERNEL_WORK_GROUP_SIZE),
                    ask(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE)};
}

}  // namespace runnel::opencl
