#include "kernels/backends/opencl/opencl_backend.h"

#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backends/host/call.h"
#include "kernels/backends/lost_backend.h"
#include "kernels/backends/opencl/code_instructions.h"
#include "kernels/backends/opencl/device/area.h"
#include "kernels/backends/opencl/device/session.h"
#include "kernels/backends/opencl/float_instructions.h"
#include "kernels/backends/opencl/grid_instructions.h"
#include "kernels/backends/opencl/instructions.h"
#include "kernels/backends/opencl/product/product_tuner.h"
#include "kernels/backends/opencl/product/products.h"
#include "kernels/backends/opencl/staging.h"
#include "kernels/backends/tells_ways.h"
#include "kernels/ir/arithmetic/float_loss.h"
#include "kernels/ir/arithmetic/integer_loss.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace opencl {
namespace {

// The order of sums of floats: another one, another number.
constexpr int kOpenClFp32Rule = 2;

// The metrics: the real losses of the logits take a logarithm, which only the host has as ref does.
bool HasHostPart(OpCode code) {
  return code == OpCode::kIntegerSoftmaxCrossEntropy ||
         code == OpCode::kIntegerSoftmaxCrossEntropyEval || code == OpCode::kSoftmaxCrossEntropy ||
         code == OpCode::kSoftmaxCrossEntropyEval;
}

bool IsOurs(OpCode code) {
  return HasKernels(code) || HasCodeKernels(code) || HasFloatKernels(code) ||
         HasGridKernels(code) || IsProduct(code) || HasHostPart(code);
}

// Whether any instruction fits.
template <typename Predicate>
bool HasAny(const Program& program, const Predicate& fits) {
  for (const auto& part : program.parts) {
    for (const Instruction& instruction : part) {
      if (fits(instruction)) return true;
    }
  }
  return false;
}

class OpenClExecutable final : public Executable, public TellsWays {
 public:
  OpenClExecutable(const Program& program, std::shared_ptr<Session> session,
                   std::shared_ptr<Areas> areas)
      : program_(program), session_(session), staging_(program, session, std::move(areas)) {}

  absl::Status Prepare() {
    const Operands operands(program_, staging_);
    const auto has_bias_gradient = [](const Instruction& instruction) {
      return (instruction.code == OpCode::kConvWeightGradient ||
              instruction.code == OpCode::kLinearWeightGradient) &&
             instruction.outputs.size() > 1;
    };
    if (HasAny(program_, [&](const Instruction& instruction) {
          return HasFloatKernels(instruction.code) || has_bias_gradient(instruction);
        })) {
      floats_ = std::make_unique<FloatInstructions>(operands, session_);
      RUNNEL_RETURN_IF_ERROR(floats_->Prepare());
    }
    if (HasAny(program_, [](const Instruction& i) { return HasGridKernels(i.code); })) {
      RUNNEL_ASSIGN_OR_RETURN(grids_, GridInstructions::Create(operands, session_));
    }
    // Products of integers begin with one of them.
    RUNNEL_ASSIGN_OR_RETURN(instructions_, Instructions::Create(operands, session_));
    RUNNEL_ASSIGN_OR_RETURN(products_, Products::Create(operands, session_));
    return absl::OkStatus();
  }

  absl::Status Run(Part part, const StepContext& context, const Bindings& bindings) override {
    RUNNEL_RETURN_IF_ERROR(session_->lost());
    for (const Instruction& instruction : program_.part(part)) {
      for (const auto* operands : {&instruction.inputs, &instruction.outputs}) {
        RUNNEL_RETURN_IF_ERROR(host::CheckBound(program_, instruction, *operands, bindings));
      }
    }
    const absl::Status status = RunPart(part, context, bindings);
    if (!status.ok()) staging_.Abandon();
    return status;
  }

  bool IsWinograd(const Instruction& instruction) const override {
    return products_->IsWinograd(instruction);
  }

  // Copies of the host's memory come with the first run.
  int64_t memory_bytes() const override {
    return instructions_->memory_bytes() + products_->memory_bytes();
  }

 private:
  absl::Status RunPart(Part part, const StepContext& context, const Bindings& bindings) {
    RUNNEL_RETURN_IF_ERROR(staging_.Enter(part, bindings));
    products_->ForgetWeights();
    for (const Instruction& instruction : program_.part(part)) {
      if (HasKernels(instruction.code))
        RUNNEL_RETURN_IF_ERROR(instructions_->Enqueue(instruction, context));
      const bool is_product = products_->Has(instruction);
      if (HasCodeKernels(instruction.code) && !is_product)
        RUNNEL_RETURN_IF_ERROR(EnqueueCodes(*session_, Operands(program_, staging_), instruction));
      if (HasFloatKernels(instruction.code))
        RUNNEL_RETURN_IF_ERROR(floats_->Enqueue(instruction, context));
      if (HasGridKernels(instruction.code))
        RUNNEL_RETURN_IF_ERROR(grids_->Enqueue(instruction, context));
      if (is_product) RUNNEL_RETURN_IF_ERROR(products_->Enqueue(instruction, context));
      products_->ForgetWritten(instruction);
      if (HasHostPart(instruction.code))
        RUNNEL_RETURN_IF_ERROR(Measure(instruction, context, bindings));
    }
    return staging_.Leave(part, bindings);
  }

  // Waits for the logits.
  absl::Status Measure(const Instruction& instruction, const StepContext& context,
                       const Bindings& bindings) {
    const Buffer& logits = program_.buffers[instruction.inputs[0]];
    const TensorRef at = staging_.At(instruction.inputs[0]);
    const auto bytes = static_cast<size_t>(logits.shape.elements()) * SizeOf(logits.dtype);
    std::vector<float> floats((bytes + sizeof(float) - 1) / sizeof(float));
    RUNNEL_RETURN_IF_ERROR(Read(at.area, at.data, floats.data(), bytes));
    const auto* labels = reinterpret_cast<const int32_t*>(Address(instruction.inputs[1], bindings));
    auto* metrics = reinterpret_cast<double*>(Address(instruction.outputs.back(), bindings));
    if (!logits.scaled) {
      FloatLogits of = {floats.data(), logits.shape[0], logits.shape[1], context.step_labels};
      if (instruction.code == OpCode::kSoftmaxCrossEntropy)
        of.label_smoothing = context.label_smoothing;
      return FloatCrossEntropy(of, labels, nullptr, metrics);
    }
    ScaleTail tail;
    RUNNEL_RETURN_IF_ERROR(Read(at.area, at.tail, &tail, sizeof tail));
    return IntegerCrossEntropy({reinterpret_cast<const int8_t*>(floats.data()), logits.shape[0],
                                logits.shape[1], tail.exponent},
                               labels, nullptr, metrics);
  }

  std::byte* Address(BufferIndex index, const Bindings& bindings) const {
    const Buffer& buffer = program_.buffers[index];
    return bindings[buffer.storage] + buffer.offset_bytes;
  }

  absl::Status Read(cl_mem area, size_t offset, void* to, size_t bytes) {
    const DriverWatch::Call call(session_->watch(), "clEnqueueReadBuffer");
    return session_->Check(clEnqueueReadBuffer(session_->queue(), area, CL_TRUE, offset, bytes, to,
                                               0, nullptr, nullptr),
                           "clEnqueueReadBuffer");
  }

  const Program& program_;
  const std::shared_ptr<Session> session_;
  Staging staging_;
  std::unique_ptr<Instructions> instructions_;
  std::unique_ptr<FloatInstructions> floats_;  // if the program has some
  std::unique_ptr<GridInstructions> grids_;    // likewise
  std::unique_ptr<Products> products_;
};

// Kernels count elements in 32 bits.
absl::Status CheckSizes(const Program& program) {
  for (const Buffer& buffer : program.buffers) {
    if (buffer.shape.elements() <= std::numeric_limits<int32_t>::max()) continue;
    return MarkLostBackend(absl::ResourceExhaustedError(absl::StrCat(
                               "backend opencl: a tensor of ", buffer.shape.ToString(),
                               " has more than 2^31 elements; take smaller micro-batches")),
                           "opencl");
  }
  return absl::OkStatus();
}

class OpenClBackend final : public Backend {
 public:
  // options: none, where the session is another's.
  OpenClBackend(std::shared_ptr<Session> session, std::optional<Options> options)
      : session_(session), areas_(std::make_shared<Areas>(session)), options_(std::move(options)) {
    if (options_.has_value()) tuner_.emplace(*options_, session_->device(), session_->budget());
  }

  // Rates: of a small GPU.
  BackendTraits traits() const override {
    const DeviceInfo& device = session_->device();
    return {.name = "opencl",
            .numerics_class = absl::StrCat(
                "opencl/", device.name, "/", device.driver, "/", session_->dot().name, "/rule",
                kOpenClFp32Rule, session_->has_half_weights() ? "/fp16-weights" : "",
                session_->has_half_activations() ? "/fp16-activations" : ""),
            .memory = MemoryKind::kDevice,
            .stash = session_->has_half_activations() ? DType::kFloat16 : DType::kFloat32,
            .keeps_values = true,
            .dilates = true,
            .pads_by_side = true,
            .delays_products = true,
            .rates = {.int8_macs_per_second = 170e9,
                      .float_macs_per_second = 50e9,
                      .bytes_per_second = 20e9,
                      .instruction_seconds = 20e-6,
                      .switch_cost = {200e-6, 0.2e-9}}};
  }

  std::string description() const override {
    return absl::StrCat(DescriptionOf(session_->device()), ", ",
                        session_->shares_memory() ? "shared" : "copied", ", dot product ",
                        session_->dot().name, DotNote(), HalvesNote(), TileNote());
  }

  // Why a faster dot product is not taken.
  std::string DotNote() const {
    const std::string& rejected = session_->rejected_dots();
    return rejected.empty() ? "" : absl::StrCat(" (not ", rejected, ")");
  }

  ProcessorFacts processor() const override {
    const DeviceInfo& device = session_->device();
    return {.backend = "opencl",
            .device = absl::StrCat(device.name, " (", device.platform_name, ")"),
            .driver = device.driver,
            .compute_units = device.compute_units,
            .memory_bytes = session_->budget()->limit_bytes(),
            .dot_product = std::string(session_->dot().name),
            .note = absl::StrCat(
                device.language,
                session_->shares_memory() ? ", in the host's memory" : ", values are copied",
                HalvesNote())};
  }

  Tuner* tuner() override { return tuner_.has_value() ? &*tuner_ : nullptr; }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    RUNNEL_RETURN_IF_ERROR(OpenAgainIfLost());
    return areas_->Allocate(bytes);
  }

  absl::StatusOr<std::unique_ptr<Executable>> Prepare(const Program& program) override {
    RUNNEL_RETURN_IF_ERROR(CheckWindows(traits(), program));
    for (const auto& part : program.parts) {
      for (const Instruction& instruction : part) {
        if (IsOurs(instruction.code)) continue;
        return absl::UnimplementedError(
            absl::StrCat("backend opencl has no ", Name(instruction.code), " (layer ",
                         instruction.layer, ", op ", instruction.op, "); take --backend cpu"));
      }
    }
    RUNNEL_RETURN_IF_ERROR(CheckSizes(program));
    RUNNEL_RETURN_IF_ERROR(OpenAgainIfLost());
    if (tuner_.has_value()) {
      tuner_->Search(program);
      for (const auto& [shape_class, tile] : tuner_->tiles())
        session_->chosen_tiles()[shape_class] = tile;
      // A tile that is forced is taken whatever it did.
      if (options_->tile.empty()) session_->hung_tiles() = tuner_->hung_tiles();
    }
    auto executable = std::make_unique<OpenClExecutable>(program, session_, areas_);
    RUNNEL_RETURN_IF_ERROR(executable->Prepare());
    return executable;
  }

 private:
  // Behind a comma.
  std::string HalvesNote() const {
    return absl::StrCat(session_->has_half_weights() ? ", weights fp16" : "",
                        session_->has_half_activations() ? ", activations fp16" : "");
  }

  std::string TileNote() const {
    const bool is_forced = options_.has_value() && !options_->tile.empty();
    std::string note = is_forced ? absl::StrCat(", tile ", options_->tile) : "";
    std::set<std::string> notes;  // several builds of a kernel may say the same
    for (const auto& [kernel, why] : session_->too_large_kernels())
      notes.insert(absl::StrCat(", no tile ", ToText(kernel.first.tile), " (it ", why, ")"));
    for (const auto& [kernels, why] : session_->refused_winograd())
      notes.insert(absl::StrCat(", no Winograd (", why, ")"));
    for (const std::string& one : notes) note += one;
    return note;
  }

  // Stages that are made after the device was lost get it anew; older ones stay lost.
  absl::Status OpenAgainIfLost() {
    if (session_->lost().ok()) return absl::OkStatus();
    if (!options_.has_value()) return session_->lost();
    RUNNEL_ASSIGN_OR_RETURN(session_, Session::Open(*options_, session_->budget()));
    areas_ = std::make_shared<Areas>(session_);
    return absl::OkStatus();
  }

  std::shared_ptr<Session> session_;
  std::shared_ptr<Areas> areas_;
  const std::optional<Options> options_;
  std::optional<ProductTuner> tuner_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> MakeBackendWith(const Options& options) {
  RUNNEL_ASSIGN_OR_RETURN(std::shared_ptr<Session> session, Session::Open(options));
  return std::make_unique<OpenClBackend>(std::move(session), options);
}

std::unique_ptr<Backend> MakeBackendOn(std::shared_ptr<Session> session) {
  return std::make_unique<OpenClBackend>(std::move(session), std::nullopt);
}

}  // namespace opencl

absl::StatusOr<std::unique_ptr<Backend>> MakeOpenClBackend(const BackendSettings& settings) {
  auto backend = opencl::MakeBackendWith(opencl::OptionsOf(settings));
  if (backend.ok()) return backend;
  const std::string why(backend.status().message());
  // An option whose text is none of its values here: the device is there.
  if (absl::IsInvalidArgument(backend.status()))
    return absl::InvalidArgumentError(absl::StrCat("backend opencl: ", why));
  return absl::InvalidArgumentError(
      absl::StrCat("backend opencl: no OpenCL here: ", why, "; take --backend cpu"));
}

}  // namespace runnel
