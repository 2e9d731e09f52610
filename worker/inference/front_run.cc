#include "worker/inference/front_run.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/ir/recipe.h"
#include "kernels/models/graph_runner.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/small_float.h"
#include "proto/base/training/int8_inference.h"
#include "proto/transport/control/model_convert.h"
#include "worker/inference/graph_convert.h"
#include "worker/measure/backend_verdicts.h"
#include "worker/stage/stage_executor.h"

namespace runnel {
namespace {

Payload LabelsOf(int64_t samples, int32_t label) {
  const std::vector<int32_t> labels(static_cast<size_t>(samples), label);
  return Payload::CopyOf(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(labels.data()),
                                             labels.size() * sizeof(int32_t)));
}

// Appends the elements of a boundary tensor as FP32, and not the values that stand beside it.
absl::Status AppendFloats(DType type, const Shape& shape, const Payload& tensor, std::string& out) {
  const auto* bytes = reinterpret_cast<const char*>(tensor.bytes().data());
  const auto size = static_cast<size_t>(ValueBytes(type, shape));
  if (type == DType::kFloat32) {
    out.append(bytes, size);
    return absl::OkStatus();
  }
  const bool is_half = type == DType::kFloat16;
  if (!is_half && type != DType::kBFloat16)
    return absl::InvalidArgumentError("the recipe's activations are no floats");
  for (size_t at = 0; at < size; at += sizeof(uint16_t)) {
    uint16_t code = 0;
    std::memcpy(&code, bytes + at, sizeof(code));
    const float value = is_half ? ToFloat<kHalfFormat>(code) : ToFloat<kBFloat16Format>(code);
    out.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return absl::OkStatus();
}

StageExecutorOptions OptionsOf(const proto::RunFront& asked, ModelSpec model, const Recipe* recipe,
                               int64_t samples) {
  StageExecutorOptions options;
  options.model = std::move(model);
  options.last_layer = asked.layers() - 1;
  options.training.dataset_samples = options.training.batch_size = asked.batch();
  options.training.eval_batch_size = asked.batch();
  options.training.optimizer = asked.optimizer();
  options.eval_samples = samples;
  options.recipe = recipe;
  options.one_in_flight = true;
  return options;
}

// Through all batches.
absl::Status Evaluate(const proto::RunFront& asked, StageExecutor& executor, int64_t samples,
                      proto::InferenceReply& reply) {
  const bool has_loss = asked.layers() == asked.model().layers_size();
  const size_t bytes = asked.samples().size() / static_cast<size_t>(samples);
  const auto* from = reinterpret_cast<const std::byte*>(asked.samples().data());
  for (int64_t first = 0; first < samples; first += asked.batch()) {
    const int64_t count = std::min(asked.batch(), samples - first);
    Payload input = Payload::CopyOf(absl::MakeConstSpan(from + static_cast<size_t>(first) * bytes,
                                                        static_cast<size_t>(count) * bytes));
    RUNNEL_ASSIGN_OR_RETURN(
        const StageCompute::Output output,
        executor.Evaluate(count, std::move(input),
                          has_loss ? LabelsOf(count, asked.label()) : Payload()));
    reply.set_samples(reply.samples() + count);
    reply.set_correct(reply.correct() + output.correct);
    if (!has_loss) {
      RUNNEL_RETURN_IF_ERROR(AppendFloats(executor.numbers().boundary(Direction::kForward),
                                          executor.output_shape(count), output.tensor,
                                          *reply.mutable_outputs()));
    }
  }
  return absl::OkStatus();
}

// A model in integers: the outputs of all its layers.
absl::Status RunIntegersOn(const std::string& backend_name, const proto::RunFront& asked,
                           const ModelSpec& model, const ModelState& state,
                           const BackendSettings& settings, proto::InferenceReply& reply) {
  RUNNEL_ASSIGN_OR_RETURN(const inference::Int8Graph graph,
                          GraphOfLayers(state, model, 0, asked.layers() - 1));
  if (graph.gives_codes) return absl::InvalidArgumentError("its layers are a part of a model");
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<Backend> backend, MakeBackend(backend_name, settings));
  if (IsLoadedBackend(backend->name()))
    RUNNEL_RETURN_IF_ERROR(BackendVerdicts(/*folder=*/"").Admit(*backend));
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<inference::GraphRunner> runner,
                          inference::GraphRunner::Make(graph, std::move(backend)));
  const auto in_bytes = static_cast<size_t>(inference::InputBytes(graph));
  const int64_t samples = std::ssize(asked.samples()) / static_cast<int64_t>(in_bytes);
  const auto classes = static_cast<size_t>(graph.classes());
  std::vector<float> input, logits;
  for (int64_t first = 0; first < samples; first += asked.batch()) {
    const auto count = static_cast<size_t>(std::min(asked.batch(), samples - first));
    // Copied: a message's bytes are not aligned for floats.
    input.resize(count * in_bytes / sizeof(float));
    std::memcpy(input.data(), asked.samples().data() + static_cast<size_t>(first) * in_bytes,
                count * in_bytes);
    logits.resize(count * classes);
    RUNNEL_RETURN_IF_ERROR(runner->Run(
        absl::MakeConstSpan(reinterpret_cast<const std::byte*>(input.data()), count * in_bytes),
        static_cast<int64_t>(count),
        absl::MakeSpan(reinterpret_cast<std::byte*>(logits.data()),
                       logits.size() * sizeof(float))));
    reply.mutable_outputs()->append(reinterpret_cast<const char*>(logits.data()),
                                    logits.size() * sizeof(float));
    reply.set_samples(reply.samples() + static_cast<int64_t>(count));
  }
  return absl::OkStatus();
}

absl::Status RunOn(const std::string& backend_name, const proto::RunFront& asked,
                   const ModelSpec& model, const ModelState& state, const BackendSettings& settings,
                   proto::InferenceReply& reply) {
  if (asked.recipe() == kInt8Inference)
    return RunIntegersOn(backend_name, asked, model, state, settings, reply);
  RUNNEL_ASSIGN_OR_RETURN(const Recipe* recipe, FindRecipe(asked.recipe()));
  if (recipe->numbers.integer_parameters())
    return absl::InvalidArgumentError(absl::StrCat("recipe ", recipe->name, " is one of integers"));
  const int64_t bytes = model.input.elements() * static_cast<int64_t>(sizeof(float));
  const auto all = static_cast<int64_t>(asked.samples().size());
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Backend> backend,
                          MakeBackend(backend_name, settings));
  BufferPool pool;
  RUNNEL_ASSIGN_OR_RETURN(
      const std::unique_ptr<StageExecutor> executor,
      StageExecutor::Create(OptionsOf(asked, model, recipe, all / bytes), backend.get(), &pool));
  RUNNEL_RETURN_IF_ERROR(executor->ImportState(state));
  return Evaluate(asked, *executor, all / bytes, reply);
}

absl::Status Check(const proto::RunFront& asked, const ModelSpec& model) {
  const int64_t bytes = model.input.elements() * static_cast<int64_t>(sizeof(float));
  const auto all = static_cast<int64_t>(asked.samples().size());
  if (all == 0 || all % bytes != 0 || asked.batch() < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("samples of ", all, " bytes: the model takes ", bytes, " each"));
  }
  if (asked.layers() < 1 || asked.layers() > model.layer_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the first ", asked.layers(), " of ", model.layer_count(), " layers"));
  }
  if (asked.label() < 0 || asked.label() >= model.classes)
    return absl::InvalidArgumentError(absl::StrCat("label ", asked.label()));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunFrontJob(proto::RunFront& asked, const BackendSettings& settings,
                         proto::InferenceReply& reply) {
  RUNNEL_ASSIGN_OR_RETURN(const ModelSpec model, FromProto(asked.model()));
  RUNNEL_RETURN_IF_ERROR(Check(asked, model));
  RUNNEL_ASSIGN_OR_RETURN(const ModelState state, FromProto(std::move(*asked.mutable_state())));
  const std::vector<std::string> names =
      asked.backend() == "auto" ? AutoBackendNames() : std::vector{asked.backend()};
  absl::Status result;
  for (const std::string& name : names) {
    result = RunOn(name, asked, model, state, settings, reply);
    if (!absl::IsUnimplemented(result)) break;
  }
  return result;
}

}  // namespace runnel
