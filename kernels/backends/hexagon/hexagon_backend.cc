#include "kernels/backends/hexagon/hexagon_backend.h"

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/backends/hexagon/code_products.h"
#include "kernels/backends/hexagon/device/device_session.h"
#include "kernels/backends/hexagon/emulated_session.h"
#include "kernels/backends/hexagon/encode.h"
#include "kernels/backends/hexagon/memory_budget.h"
#include "kernels/backends/hexagon/product_scales.h"
#include "kernels/backends/hexagon/staging.h"
#include "kernels/backends/hexagon/weight_places.h"
#include "kernels/backends/host/call.h"
#include "kernels/backends/lost_backend.h"
#include "kernels/ir/arithmetic/integer_loss.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace hexagon {
namespace {

std::string NameOf(const Instruction& instruction) {
  return absl::StrCat(Name(instruction.code), " (layer ", instruction.layer, ", op ",
                      instruction.op, ")");
}

bool LeavesTheDsp(Storage storage) {
  return storage == Storage::kOutput || storage == Storage::kInputGradient ||
         storage == Storage::kNewParameters;
}

// Numbers of an executable's lists (DspSession::Submit), for each part the same number of them.
constexpr uint64_t kListsOfPart = 1 << 16;
uint64_t NextListNumbers() {
  static std::atomic<uint64_t> next = 1;
  return next.fetch_add(1) * kListsOfPart * kPartCount;
}

class HexagonExecutable final : public Executable {
 public:
  HexagonExecutable(const Program& program, std::shared_ptr<DspSession> session,
                    std::shared_ptr<const CodeScratch> code_scratch)
      : program_(program),
        session_(std::move(session)),
        code_scratch_(std::move(code_scratch)),
        staging_(program, session_->memory()),
        scales_(program, session_->memory()),
        places_(program),
        first_list_(NextListNumbers()) {}

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    for (const Instruction& instruction : program_.part(part)) {
      for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
        RUNNEL_RETURN_IF_ERROR(host::CheckBound(program_, instruction, *operands, bindings));
      }
    }
    RUNNEL_RETURN_IF_ERROR(staging_.Enter(part, bindings));
    RUNNEL_RETURN_IF_ERROR(scales_.Open());
    places_.PlanFor(session_->packed_bytes());
    session_->KeepPlaces(places_.kept_bytes());
    uint64_t list = first_list_ + static_cast<uint64_t>(part) * kListsOfPart;
    std::vector<const Instruction*> batch;
    for (const Instruction& instruction : program_.part(part)) {
      if (DspCodeOf(instruction.code)) batch.push_back(&instruction);
      const bool has_host_part =
          HasHostPart(instruction.code) || IsProductOfCodes(instruction.code);
      if (!has_host_part && batch.size() < kMaxOps) continue;
      RUNNEL_RETURN_IF_ERROR(RunBatch(batch, context, list++));
      batch.clear();
      if (HasHostPart(instruction.code)) RUNNEL_RETURN_IF_ERROR(Measure(instruction, bindings));
      if (IsProductOfCodes(instruction.code))
        RUNNEL_RETURN_IF_ERROR(RunOfCodes(instruction, context, list++));
    }
    RUNNEL_RETURN_IF_ERROR(RunBatch(batch, context, list));
    for (const Instruction& instruction : program_.part(part)) {
      RUNNEL_RETURN_IF_ERROR(CheckTails(instruction));
    }
    staging_.Leave(part, bindings);
    // The packed weights of these bytes are no longer those.
    for (const Instruction& instruction : program_.part(part)) {
      for (BufferIndex index : instruction.outputs) {
        if (program_.buffers[index].storage != Storage::kNewParameters) continue;
        session_->memory()->RenewVersion(bindings[Storage::kNewParameters]);
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

 private:
  // A list of operations is one submission.
  absl::Status RunBatch(const std::vector<const Instruction*>& batch, const StepContext& context,
                        uint64_t list) {
    if (batch.empty()) return absl::OkStatus();
    std::vector<DspOp> ops;
    for (const Instruction* instruction : batch) {
      ops.push_back(Encode(
          program_, *instruction, context,
          [&](BufferIndex index) { return staging_.OffsetOf(index); },
          [&](BufferIndex index) { return staging_.VersionOf(index); }));
      places_.Assign(ops.back());
      if (TraitsOf(instruction->code).rescales) {
        scales_.Begin(*instruction, KeptScaleOf(*instruction), ops.back());
        RecordKeptScale(*instruction);
      }
    }
    RUNNEL_RETURN_IF_ERROR(session_->Submit(ops, list));
    RUNNEL_RETURN_IF_ERROR(session_->Wait());
    for (const Instruction* instruction : batch) {
      if (!TraitsOf(instruction->code).rescales) continue;
      RUNNEL_RETURN_IF_ERROR(scales_.Finish(*instruction, KeptScaleOf(*instruction)));
      RecordKeptScale(*instruction);
    }
    return absl::OkStatus();
  }

  absl::Status RunOfCodes(const Instruction& instruction, const StepContext& context,
                          uint64_t list) {
    return RunProductOfCodes({program_, instruction, context, staging_.bindings()},
                             host::GeometryOf(program_, instruction), *code_scratch_, *session_,
                             list);
  }

  // The host keeps it, since it lies in memory whose neighbours the DSP writes.
  void RecordKeptScale(const Instruction& instruction) const {
    if (instruction.outputs.size() < 2) return;
    session_->memory()->RecordChange(staging_.OffsetOf(instruction.outputs[1]), sizeof(KeptScale));
  }

  KeptScale* KeptScaleOf(const Instruction& instruction) const {
    if (instruction.outputs.size() < 2) return nullptr;
    return reinterpret_cast<KeptScale*>(staging_.Address(instruction.outputs[1]));
  }

  // Checks the tails that the DSP wrote, since the host's arithmetic follows them. Values that stay
  // on the DSP are not checked: their memory may have been used again.
  absl::Status CheckTails(const Instruction& instruction) const {
    for (BufferIndex index : instruction.outputs) {
      const Buffer& buffer = program_.buffers[index];
      if (!buffer.scaled || !LeavesTheDsp(buffer.storage)) continue;
      const ScaleTail& tail = TailOf(staging_.Address(index), buffer.dtype, buffer.shape);
      if (kScaleExponent.Admits(tail.exponent) && tail.max_abs >= 0) continue;
      return MarkLostBackend(
          absl::UnavailableError(absl::StrCat(
              "backend hexagon: the DSP program answered nonsense: ", NameOf(instruction),
              " has exponent ", tail.exponent, " and maximum ", tail.max_abs)),
          "hexagon");
    }
    return absl::OkStatus();
  }

  // The real losses of the logits: they take a logarithm, which only the host has as ref does.
  absl::Status Measure(const Instruction& instruction, const Bindings& bindings) const {
    const BufferIndex logits = instruction.inputs[0];
    const Buffer& buffer = program_.buffers[logits];
    const std::byte* at = staging_.Address(logits);
    const Buffer& metrics = program_.buffers[instruction.outputs.back()];
    return IntegerCrossEntropy(
        {reinterpret_cast<const int8_t*>(at), buffer.shape[0], buffer.shape[1],
         TailOf(at, buffer.dtype, buffer.shape).exponent},
        reinterpret_cast<const int32_t*>(staging_.Address(instruction.inputs[1])), nullptr,
        reinterpret_cast<double*>(bindings[metrics.storage] + metrics.offset_bytes));
  }

  const Program& program_;
  const std::shared_ptr<DspSession> session_;
  const std::shared_ptr<const CodeScratch> code_scratch_;
  Staging staging_;
  ProductScales scales_;
  WeightPlaces places_;
  const uint64_t first_list_;
};

// Stages that are made after the DSP was lost get a session of their own; those from before have
// lost their state.
class HexagonBackend final : public Backend {
 public:
  HexagonBackend(std::unique_ptr<DspSession> session, OpenFn open)
      : session_(std::move(session)),
        code_scratch_(std::make_shared<CodeScratch>(session_->memory())),
        open_(std::move(open)) {}

  // A device is timed. Rates of one that the emulator stands for: 10^9 packets a second with 1.6
  // products of 128 bytes in each, as it counts (FIGURES.md), and the switch of the paper's phone.
  BackendTraits traits() const override {
    return {.name = "hexagon",
            .numerics_class = absl::StrCat("hexagon/", session_->name()),
            .memory = MemoryKind::kDevice,
            .rescales_in_products = true,
            .multiplies_codes = true,
            .shifts_slices = true,
            .keeps_values = true,
            .pads_by_side = true,
            .rates = {.is_timed = !session_->is_emulated(),
                      .int8_macs_per_second = 200e9,
                      .float_macs_per_second = 1e9,
                      .bytes_per_second = 10e9,
                      .instruction_seconds = 5e-6,
                      .switch_cost = {25e-3, 0.2e-9}}};
  }
  std::string description() const override {
    return absl::StrCat("Hexagon DSP ", session_->description(), ", integer recipes, ",
                        session_->memory()->bytes() >> 20, " MiB shared with the host");
  }

  ProcessorFacts processor() const override {
    return {.backend = "hexagon",
            .device = absl::StrCat("Hexagon DSP ", session_->description()),
            .memory_bytes = int64_t{session_->memory()->bytes()} - kDeskBytes,
            .dot_product = "vrmpy",
            .is_emulated = session_->is_emulated()};
  }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    RUNNEL_RETURN_IF_ERROR(OpenAgainIfLost());
    return session_->memory()->Allocate(bytes);
  }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_RETURN_IF_ERROR(CheckWindows(traits(), program));
    RUNNEL_RETURN_IF_ERROR(OpenAgainIfLost());
    for (const auto& part : program.parts) {
      for (const Instruction& instruction : part) {
        if (DspCodeOf(instruction.code) || HasHostPart(instruction.code)) continue;
        if (IsProductOfCodes(instruction.code)) {
          RUNNEL_RETURN_IF_ERROR(CheckProductOfCodes(instruction));
          continue;
        }
        const bool is_of_grids = TraitsOf(instruction.code).numbers == Numbers::kGridFloats;
        return absl::UnimplementedError(
            absl::StrCat("backend hexagon has no ", NameOf(instruction),
                         is_of_grids ? "; take --backend cpu,hexagon" : ""));
      }
    }
    RUNNEL_RETURN_IF_ERROR(code_scratch_->Reserve(program));
    return std::make_unique<HexagonExecutable>(program, session_, code_scratch_);
  }

 private:
  absl::Status OpenAgainIfLost() {
    if (!session_->lost() || !open_) return absl::OkStatus();
    RUNNEL_ASSIGN_OR_RETURN(session_, open_());
    code_scratch_ = std::make_shared<CodeScratch>(session_->memory());
    return absl::OkStatus();
  }

  std::shared_ptr<DspSession> session_;
  std::shared_ptr<CodeScratch> code_scratch_;  // of the session
  const OpenFn open_;
};

}  // namespace

std::unique_ptr<Backend> MakeBackendOn(std::unique_ptr<DspSession> session, OpenFn open) {
  return std::make_unique<HexagonBackend>(std::move(session), std::move(open));
}

}  // namespace hexagon

namespace {

std::string Environment(const char* name) {
  const char* given = std::getenv(name);
  return given == nullptr ? "" : given;
}

// Sessions that option hexagon.dsp allows.
struct Allowed {
  explicit Allowed(const BackendOptions& options) {
    const absl::string_view dsp = options.Get("hexagon", "dsp");
    device = dsp != "emulated";
    emulated = dsp != "device";
  }
  bool device = true;
  bool emulated = true;
};

// Option hexagon.stall_s, or as usual.
int StallSeconds(const BackendSettings& settings, int usual) {
  return static_cast<int>(settings.options.Seconds("hexagon", "stall_s", usual));
}

absl::StatusOr<std::string> FindDevice() {
  return hexagon::FindVendorLibrary(Environment("RUNNEL_DSP_LIBRARY"));
}

absl::StatusOr<std::unique_ptr<hexagon::DspSession>> OpenDevice(std::string library,
                                                                const BackendSettings& settings) {
  const int64_t budget_bytes = settings.device_memory_bytes;
  hexagon::DeviceSessionOptions options;
  options.link.library = std::move(library);
  options.link.objects = Environment("RUNNEL_DSP_OBJECTS");
  if (options.link.objects.empty()) options.link.objects = hexagon::DspObjectFolder();
  options.stall_seconds = StallSeconds(settings, options.stall_seconds);
  if (budget_bytes > 0) {
    RUNNEL_ASSIGN_OR_RETURN(const hexagon::DspMemory memory, hexagon::DivideDevice(budget_bytes));
    options.link.shared_bytes = memory.shared;
    options.link.private_bytes = memory.scratch + memory.packed;
  }
  return hexagon::OpenDeviceSession(options);
}

// `no_device`: why it is not the device.
absl::StatusOr<std::unique_ptr<hexagon::DspSession>> OpenEmulator(absl::string_view no_device,
                                                                  const BackendSettings& settings) {
  const int64_t budget_bytes = settings.device_memory_bytes;
  hexagon::EmulatedSessionOptions options;
  RUNNEL_ASSIGN_OR_RETURN(options.command, hexagon::FindEmulator());
  options.stall_seconds = StallSeconds(settings, options.stall_seconds);
  options.why_emulated = std::string(no_device);
  if (budget_bytes > 0) {
    RUNNEL_ASSIGN_OR_RETURN(const hexagon::DspMemory memory, hexagon::DivideEmulated(budget_bytes));
    options.shared_bytes = memory.shared;
    options.private_bytes = memory.scratch + memory.packed;
    options.packed_bytes = memory.packed;
    options.packed_gets_rest = true;
  }
  return hexagon::OpenEmulatedSession(std::move(options));
}

// The device's, where its library is; else the emulated one.
absl::StatusOr<std::unique_ptr<hexagon::DspSession>> OpenAllowed(const BackendSettings& settings) {
  const Allowed allowed(settings.options);
  if (!allowed.device) return OpenEmulator("hexagon.dsp=emulated", settings);
  absl::StatusOr<std::string> library = FindDevice();
  if (library.ok()) return OpenDevice(*std::move(library), settings);
  if (!allowed.emulated) return library.status();
  auto session = OpenEmulator(library.status().message(), settings);
  if (session.ok()) return session;
  return absl::NotFoundError(
      absl::StrCat(library.status().message(), "; no emulated one: ", session.status().message()));
}

absl::StatusOr<std::unique_ptr<hexagon::DspSession>> OpenDsp(const BackendSettings& settings) {
  auto session = OpenAllowed(settings);
  if (session.ok()) return session;
  return absl::InvalidArgumentError(absl::StrCat(
      "backend hexagon: no DSP here: ", session.status().message(), "; take --backend cpu"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeHexagonBackend(const BackendSettings& settings) {
  const auto open = [settings] { return OpenDsp(settings); };
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<hexagon::DspSession> session, open());
  return hexagon::MakeBackendOn(std::move(session), open);
}

std::string HexagonStamp() {
  return absl::StrCat(Environment("RUNNEL_DSP_LIBRARY"), " ", Environment("RUNNEL_DSP_OBJECTS"));
}

bool HasHexagonDevice(const BackendOptions& options) {
  return Allowed(options).device && FindDevice().ok();
}

bool IsHexagonInstalled(absl::string_view, const BackendOptions& options) {
  const Allowed allowed(options);
  return (allowed.device && FindDevice().ok()) ||
         (allowed.emulated && hexagon::FindEmulator().ok());
}

}  // namespace runnel
