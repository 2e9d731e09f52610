#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "kernels/backends/backend.h"
#include "kernels/backends/cpu/cpu_backend.h"
#include "kernels/backends/hexagon/hexagon_backend.h"
#include "kernels/backends/mixed/mixed_backend.h"
#include "kernels/backends/opencl/device/drivers.h"
#include "kernels/backends/ref/ref_backend.h"
#include "kernels/backends/small/small_backend.h"
#include "proto/base/status_macros.h"
#ifdef RUNNEL_STATIC_OPENCL
#include "kernels/backends/opencl/opencl_backend.h"
#endif
#ifdef RUNNEL_LOADS_BACKENDS
#include "kernels/backends/host/loaded_backend.h"
#endif

namespace runnel {
namespace {

#if defined(RUNNEL_LOADS_OPENCL) || defined(RUNNEL_STATIC_OPENCL)
#ifdef RUNNEL_STATIC_OPENCL
absl::StatusOr<std::unique_ptr<Backend>> TakeOpenCl(const BackendSettings& settings) {
  return MakeOpenClBackend(settings);
}
bool HasOpenClBackend(absl::string_view) { return true; }
#else
absl::StatusOr<std::unique_ptr<Backend>> TakeOpenCl(const BackendSettings& settings) {
  return LoadBackend("opencl", settings);
}
bool HasOpenClBackend(absl::string_view name) { return IsBackendInstalled(name); }
#endif
absl::StatusOr<std::unique_ptr<Backend>> MakeOpenCl(const BackendSettings& settings) {
  constexpr absl::string_view kName = "backend opencl: ";
  const auto not_here = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(kName, "no OpenCL here: ", why));
  };
  // The shared object has OpenCL's functions from what is loaded before it.
  if (const absl::Status loaded = opencl::LoadOpenClLibrary(settings.options); !loaded.ok())
    return not_here(loaded.message());
  auto backend = TakeOpenCl(settings);
  const absl::string_view why = absl::StripPrefix(backend.status().message(), kName);
  // What it says itself stays.
  if (backend.ok() || !absl::StartsWith(why, "/")) return backend;
  return not_here(why);
}
bool IsOpenClInstalled(absl::string_view name, const BackendOptions& options) {
  return HasOpenClBackend(name) && opencl::HasDriver(options);
}
#else
absl::StatusOr<std::unique_ptr<Backend>> MakeOpenCl(const BackendSettings&) {
  return absl::InvalidArgumentError(
      "backend opencl: no OpenCL here: the build had no OpenCL headers; take --backend "
      "cpu");
}
bool IsOpenClInstalled(absl::string_view, const BackendOptions&) { return false; }
#endif

#ifdef RUNNEL_LOADS_TORCH
absl::StatusOr<std::unique_ptr<Backend>> MakeTorch(const BackendSettings& settings) {
  return LoadBackend("torch", settings);
}
bool IsTorchInstalled(absl::string_view name, const BackendOptions&) {
  return IsBackendInstalled(name);
}
#else
absl::StatusOr<std::unique_ptr<Backend>> MakeTorch(const BackendSettings&) {
  return absl::InvalidArgumentError(
      "backend torch: the build had no LibTorch (RUNNEL_TORCH); take --backend cpu");
}
bool IsTorchInstalled(absl::string_view, const BackendOptions&) { return false; }
#endif

absl::StatusOr<std::unique_ptr<Backend>> MakeCpu(const BackendSettings& settings) {
  return MakeCpuBackend(settings.threads);
}
absl::StatusOr<std::unique_ptr<Backend>> MakeRef(const BackendSettings& settings) {
  return MakeRefBackend(settings.threads);
}

// Of a CPU's: "generally 3-5x more energy efficient" (Mandheling, MobiCom 2022, section 3.3), the
// middle of it. A phone's GPU trains there for as much as its CPU (figure 6: 3.5 to 11 times and 3.2
// to 11.2 times what the DSP takes), so it has no share of its own.
constexpr double kDspEnergy = 0.25;

absl::StatusOr<std::unique_ptr<Backend>> MakeWith(const BackendRow& row,
                                                  const BackendSettings& settings) {
  absl::StatusOr<std::unique_ptr<Backend>> backend = row.make(settings);
  if (!backend.ok()) return backend;
  (*backend)->set_energy({row.energy, settings.options.Number(row.name, "mac_pj", 0)});
  return backend;
}

}  // namespace

absl::Span<const BackendRow> BuiltinBackends() {
  static constexpr BackendRow rows[] = {
      {"cpu",
       "own kernels, FP32 and INT8, for AVX-512, AVX2, NEON and portable; cpu:avx2 takes no "
       "better one",
       MakeCpu},
      {"small",
       "primitives for cores without much memory: FP32, bf16 and fp16, tiles in an L1 of 64 KiB",
       MakeSmallBackend},
      {"ref", "plain loops: slow, the specification of the others", MakeRef},
      {"hexagon", "a Hexagon DSP, or one under qemu-hexagon, integer recipes", MakeHexagonBackend,
       IsHexagonInstalled, HasHexagonDevice, HexagonStamp, /*has_floats=*/false, kDspEnergy},
      {"opencl", "a GPU or another OpenCL device", MakeOpenCl, IsOpenClInstalled,
       opencl::MayHaveGpu, opencl::DriverStamp},
      {"torch", "LibTorch on the CPU, FP32", MakeTorch, IsTorchInstalled},
  };
  return rows;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(absl::string_view name,
                                                     const BackendSettings& settings) {
  if (settings.threads < 1) {
    return absl::InvalidArgumentError(absl::StrCat("threads ", settings.threads, " is below 1"));
  }
  if (absl::StrContains(name, ',')) return MakeCoScheduler(name, settings);
  constexpr absl::string_view kCapped = "cpu:";
  if (absl::StartsWith(name, kCapped)) {
    auto backend = MakeCappedCpuBackend(name.substr(kCapped.size()), settings.threads);
    if (backend.ok())
      (*backend)->set_energy({.mac_picojoules = settings.options.Number("cpu", "mac_pj", 0)});
    return backend;
  }
  for (const BackendRow& row : BuiltinBackends()) {
    if (name == "auto" || name == row.name) return MakeWith(row, settings);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("backend '", name, "' is not known; there is auto, ",
                   absl::StrJoin(BackendNames(settings.options), ", ")));
}

absl::StatusOr<std::unique_ptr<CoScheduler>> MakeCoScheduler(absl::string_view names,
                                                             const BackendSettings& settings,
                                                             MixedOptions options) {
  if (const size_t at = names.find('@'); at != absl::string_view::npos)
    options.rule = std::string(names.substr(at + 1));
  std::vector<std::unique_ptr<Backend>> processors;
  for (const std::string& name : ProcessorsOf(names)) {
    const bool is_known = std::any_of(processors.begin(), processors.end(),
                                      [&](const auto& one) { return one->name() == name; });
    if (is_known) {
      return absl::InvalidArgumentError(
          absl::StrCat("processors '", names, "': ", name, " stands there twice"));
    }
    RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> processor, MakeBackend(name, settings));
    if (processors.empty() && processor->traits().memory != MemoryKind::kHost) {
      return absl::InvalidArgumentError(
          absl::StrCat("processors '", names, "': ", name,
                       " has memory of its own; the first one is the host's, cpu"));
    }
    processors.push_back(std::move(processor));
  }
  const ProcessorEnergy host =
      processors.empty() ? ProcessorEnergy() : processors.front()->energy();
  auto made = MakeCoScheduler(std::move(processors), std::move(options));
  if (made.ok()) (*made)->set_energy(host);
  if (made.ok()) return made;
  return absl::Status(made.status().code(),
                      absl::StrCat("processors '", names, "': ", made.status().message()));
}

std::vector<std::string> BackendNames(const BackendOptions& options) {
  std::vector<std::string> names;
  for (const BackendRow& row : BuiltinBackends()) {
    if (!row.is_loaded() || row.is_installed(row.name, options)) names.emplace_back(row.name);
  }
  return names;
}

bool IsLoadedBackend(absl::string_view name) {
  const absl::Span<const BackendRow> rows = BuiltinBackends();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const BackendRow& row) { return row.is_loaded() && row.name == name; });
}

std::vector<std::string> BackendsWorthMeasuring(const BackendOptions& options) {
  std::vector<std::string> names;
  for (const BackendRow& row : BuiltinBackends()) {
    if (row.is_worth_measuring == nullptr || !row.is_worth_measuring(options)) continue;
    if (row.is_installed(row.name, options)) names.emplace_back(row.name);
  }
  return names;
}

std::string DriverStamps() {
  std::string stamps;
  for (const BackendRow& row : BuiltinBackends()) {
    if (row.driver_stamp == nullptr || !row.is_installed(row.name, {})) continue;
    absl::StrAppend(&stamps, row.name, ": ", row.driver_stamp(), "\n");
  }
  return stamps;
}

std::vector<std::string> AutoBackendNames() {
  std::vector<std::string> names;
  for (const BackendRow& row : BuiltinBackends()) {
    if (!row.is_loaded()) names.emplace_back(row.name);
  }
  return names;
}

}  // namespace runnel
