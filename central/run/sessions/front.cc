#include "central/run/sessions/front.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/records/quantized_model.h"
#include "central/run/inference/inference_process.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/int8_inference.h"

namespace runnel {
namespace {

// Of a job's samples and answer: each is a message, and lies in memory three times.
constexpr int64_t kJobBytes = int64_t{128} << 20;

// Tokens travel as i32.
void MakeIntegers(std::string& floats) {
  for (size_t at = 0; at < floats.size(); at += sizeof(float)) {
    float value = 0;
    std::memcpy(&value, floats.data() + at, sizeof(value));
    const auto token = static_cast<int32_t>(value);
    std::memcpy(floats.data() + at, &token, sizeof(token));
  }
}

// Hands the samples to worker processes, in order, as many as fit a job.
absl::Status RunJobs(const Checkpoint& whole, const FrontJobOptions& options, int64_t output_bytes,
                     const Dataset& data, absl::Span<const int64_t> indices,
                     const std::function<absl::Status(int64_t first, InferenceReply reply)>& use) {
  const int64_t elements = data.sample_shape().elements();
  const int64_t each = elements * static_cast<int64_t>(sizeof(float)) + output_bytes;
  const int64_t most = std::max<int64_t>(1, kJobBytes / each);
  for (int64_t first = 0; first < std::ssize(indices); first += most) {
    const int64_t count = std::min(most, std::ssize(indices) - first);
    std::string samples(static_cast<size_t>(count * elements) * sizeof(float), '\0');
    auto* values = reinterpret_cast<float*>(samples.data());
    for (int64_t i = 0; i < count; ++i) {
      data.CopySample(indices[static_cast<size_t>(first + i)],
                      absl::MakeSpan(values + i * elements, static_cast<size_t>(elements)));
    }
    if (data.tokens() > 0) MakeIntegers(samples);
    RUNNEL_ASSIGN_OR_RETURN(const std::string job,
                            FrontJob(std::move(samples), whole.model, whole.state, options));
    RUNNEL_ASSIGN_OR_RETURN(
        InferenceReply reply,
        RunInferenceProcess(job, {whole.settings.worker_threads, whole.settings.backend_options}));
    if (reply.samples != count) return absl::InternalError("the worker left samples out");
    RUNNEL_RETURN_IF_ERROR(use(first, std::move(reply)));
  }
  return absl::OkStatus();
}

FrontJobOptions OptionsOf(const Checkpoint& whole, int layers) {
  FrontJobOptions options;
  options.layers = layers;
  options.recipe = whole.settings.recipe;
  options.optimizer = whole.training.optimizer;
  options.backend = whole.settings.backend;
  return options;
}

}  // namespace

absl::Status Front::AddLatents(const Dataset& data, absl::Span<const int64_t> indices,
                               LatentSet& to) {
  const auto elements = static_cast<size_t>(to.shape().elements());
  const auto bytes = static_cast<int64_t>(elements * sizeof(float));
  return RunJobs(whole_, OptionsOf(whole_, layer_), bytes, data, indices,
                 [&](int64_t first, InferenceReply reply) -> absl::Status {
                   if (std::ssize(reply.outputs) != reply.samples * bytes)
                     return absl::InternalError("the worker gave latents of another size");
                   samples_ += reply.samples;
                   std::vector<float> latent(elements);
                   for (int64_t i = 0; i < reply.samples; ++i) {
                     std::memcpy(latent.data(), reply.outputs.data() + i * bytes,
                                 static_cast<size_t>(bytes));
                     const int64_t index = indices[static_cast<size_t>(first + i)];
                     RUNNEL_RETURN_IF_ERROR(to.Add(latent, data.label(index)));
                   }
                   return absl::OkStatus();
                 });
}

absl::StatusOr<std::vector<ClassTally>> EvaluateClasses(const Checkpoint& whole,
                                                        const Dataset& data,
                                                        const std::vector<bool>& classes) {
  std::vector<std::vector<int64_t>> members(classes.size());
  for (int64_t i = 0; i < data.size(); ++i)
    members[static_cast<size_t>(data.label(i))].push_back(i);
  std::vector<ClassTally> tallies(classes.size());
  for (size_t label = 0; label < classes.size(); ++label) {
    if (!classes[label]) continue;
    FrontJobOptions options = OptionsOf(whole, whole.model.layer_count());
    options.label = static_cast<int32_t>(label);
    RUNNEL_RETURN_IF_ERROR(
        RunJobs(whole, options, 0, data, members[label], [&](int64_t, InferenceReply reply) {
          tallies[label].samples += reply.samples;
          tallies[label].correct += reply.correct;
          return absl::OkStatus();
        }));
  }
  return tallies;
}

absl::Status ComputeOutputs(const Checkpoint& whole, const Dataset& data, const UseOutputsFn& use) {
  FrontJobOptions options = OptionsOf(whole, whole.model.layer_count());
  options.outputs = options.recipe != kInt8Inference;
  const auto width = static_cast<size_t>(whole.model.classes) * sizeof(float);
  const int64_t bytes = data.labels_per_sample() * static_cast<int64_t>(width);
  std::vector<int64_t> indices(static_cast<size_t>(data.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return RunJobs(
      whole, options, bytes, data, indices,
      [&](int64_t first, const InferenceReply& reply) -> absl::Status {
        if (std::ssize(reply.outputs) != reply.samples * bytes)
          return absl::InternalError("the worker gave outputs of another size");
        std::vector<float> outputs(static_cast<size_t>(reply.samples * whole.model.classes));
        auto* to = reinterpret_cast<char*>(outputs.data());
        for (int64_t i = 0; i < reply.samples; ++i) {
          const auto label = static_cast<size_t>(data.predicted_label(first + i));
          std::memcpy(to + static_cast<size_t>(i) * width,
                      reply.outputs.data() + i * bytes + label * width, width);
        }
        return use(first, outputs);
      });
}

}  // namespace runnel
