#include "tests/kernels/integer_backends.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "kernels/backends/hexagon/hexagon_backend.h"
#include "kernels/backends/mixed/mixed_backend.h"
#include "proto/base/status_macros.h"
#include "tests/kernels/device_backend.h"
#include "tests/kernels/dsp_device/device_double.h"
#include "tests/kernels/grouped_backend.h"

namespace runnel {

std::vector<std::string> IntegerBackendNames() {
  std::vector<std::string> names = {"ref/1"};
  for (const std::string& set : CpuInstructionSets()) {
    for (const char* threads : {"/1", "/2"}) names.push_back(absl::StrCat("cpu:", set, threads));
  }
  for (const std::string& name : BackendNames()) {
    if (name == "hexagon" || name == "opencl") names.push_back(absl::StrCat(name, "/1"));
  }
  return names;
}

std::vector<std::string> ForcedBackendNames() {
  std::vector<std::string> names;
  for (const std::string& name : IntegerBackendNames()) {
    if (name == "hexagon/1") {
      names.emplace_back(kSmallDsp);
      if (hexagon::HasDouble().ok()) names.emplace_back(kDeviceDsp);
    }
    if (name != "opencl/1") continue;
    for (const char* forced : {"mad24", "copied", "image"})
      names.push_back(absl::StrCat(kForcedOpenCl, forced, "/1"));
  }
  return names;
}

namespace {

// "cpu,ref,hexagon,opencl": what is there.
std::string AllProcessors() {
  std::string all = "cpu,ref";
  for (const std::string& name : BackendNames()) {
    if (name == "hexagon" || name == "opencl") absl::StrAppend(&all, ",", name);
  }
  return all;
}

}  // namespace

std::string RandomlyMixed(int seed) {
  return absl::StrCat(seed % 2 == 0 ? "cpu,ref" : AllProcessors(), "@random:", seed, "/1");
}

std::vector<std::string> MixedBackendNames() {
  std::vector<std::string> names = {"cpu,ref@alternate/1", "ref,cpu@alternate/1", "cpu,ref@*=ref/1",
                                    "cpu,ref@int8_conv_forward=ref+rescale=ref+niti_update=ref/1",
                                    kMixedDevice};
  for (const std::string& name : BackendNames()) {
    if (name == "hexagon" || name == "opencl")
      names.push_back(absl::StrCat("cpu,", name, "@alternate/1"));
  }
  // Where there is no other device, all of them are the two above.
  const std::string all = absl::StrCat(AllProcessors(), "@alternate/1");
  if (std::find(names.begin(), names.end(), all) == names.end()) names.push_back(all);
  return names;
}

namespace {

absl::StatusOr<std::unique_ptr<Backend>> MakeMixedDevice() {
  std::vector<std::unique_ptr<Backend>> processors;
  for (const char* name : {"cpu", "ref"}) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> one, MakeBackend(name, 1));
    processors.push_back(std::move(one));
  }
  processors[1] = MakeDeviceBackend(std::move(processors[1]));
  return MakeCoScheduler(std::move(processors), {.rule = "alternate"});
}

absl::StatusOr<std::unique_ptr<Backend>> MakeForcedOpenCl(const std::string& forced) {
  std::string options = absl::StrCat("opencl.dot=", forced);
  if (forced == "copied") options = "opencl.memory=copied";
  // Copies end with a whole texel: all weights are read as images.
  if (forced == "image")
    options = "opencl.memory=copied; opencl.tile=4x1 by 8x8, depth 8, vector 1, weights image";
  BackendSettings settings;
  RUNNEL_ASSIGN_OR_RETURN(settings.options, BackendOptions::Parse(options));
  return MakeBackend("opencl", settings);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeIntegerBackend(const std::string& name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '/');
  int threads = 1;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &threads)) {
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is not name/threads"));
  }
  if (absl::StartsWith(name, kForcedOpenCl))
    return MakeForcedOpenCl(parts[0].substr(std::strlen(kForcedOpenCl)));
  if (uint64_t seed = 0; absl::StartsWith(name, kGrouped) &&
                         absl::SimpleAtoi(parts[0].substr(std::strlen(kGrouped)), &seed))
    return MakeGroupedBackend(seed);
  if (name == kMixedDevice) return MakeMixedDevice();
  if (name == kDeviceDsp) {
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<hexagon::DspSession> session,
                            hexagon::OpenDeviceSession(hexagon::DoubleOptions()));
    return hexagon::MakeBackendOn(std::move(session));
  }
  if (name != kSmallDsp) return MakeBackend(parts[0], threads);
  RUNNEL_ASSIGN_OR_RETURN(std::vector<std::string> command, hexagon::FindEmulator());
  RUNNEL_ASSIGN_OR_RETURN(
      std::unique_ptr<hexagon::DspSession> session,
      hexagon::OpenEmulatedSession({.command = std::move(command),
                                    .packed_bytes = 24 << 10,  // not for all of a network
                                    .vtcm_bytes = 32 << 10}));
  return hexagon::MakeBackendOn(std::move(session));
}

std::string TestNameOf(const std::string& backend) {
  std::string name = backend;
  for (char& c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  }
  return name;
}

}  // namespace runnel
