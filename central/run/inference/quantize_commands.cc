#include "central/run/inference/quantize_commands.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "central/data/batch_source.h"
#include "central/display/layer_report.h"
#include "central/records/summary.h"
#include "central/records/weights_digest.h"
#include "central/run/inference/evaluate_by_stages.h"
#include "central/run/inference/inference_process.h"
#include "central/run/run_setup.h"
#include "central/run/trained_weights.h"
#include "partition/zoo/rewrites/rewrites.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

// Samples that a worker process observes at a time.
constexpr int64_t kBatch = 64;

absl::Status Named(const std::string& flag, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(flag, ": ", status.message()));
}

// `count` samples of the training set, drawn by the run's seed, as FP32 bytes.
std::string CalibrationSamples(const Dataset& train, uint64_t seed, int64_t count) {
  const std::vector<int64_t> order = EpochPermutation(train.size(), seed, /*epoch=*/0);
  const int64_t elements = train.sample_shape().elements();
  std::string bytes(count * elements * sizeof(float), '\0');
  auto* values = reinterpret_cast<float*>(bytes.data());
  for (int64_t i = 0; i < count; ++i) {
    train.CopySample(order[i], absl::MakeSpan(values + i * elements, elements));
  }
  return bytes;
}

std::string MethodText(const QuantizeMethod& method) {
  return absl::StrCat(method.calibration, ", ", method.scheme, ", by ", method.granularity,
                      method.fold_batch_norm ? "" : ", batch norm not folded",
                      method.winograd == "off" ? "" : ", Winograd ",
                      method.winograd == "off" ? "" : method.winograd,
                      method.first_layer == "fp32" ? ", first layer in FP32" : "",
                      method.last_layer == "fp32" ? ", last layer in FP32" : "");
}

absl::Status WriteReport(const QuantizedModel& model, const InferenceReply& reply,
                         const std::string& path, const std::string& flag) {
  if (path.empty()) return absl::OkStatus();
  LayerReport report;
  report.title = absl::StrCat(model.settings.model, " in INT8 (", MethodText(model.method), ")");
  report.kernels = reply.kernels;
  report.threads = reply.threads;
  report.peak = reply.peak;
  report.layers = reply.layers;
  report.errors = model.errors;
  return Named(flag, WriteLayerReport(report, path));
}

// A line on the result of --winograd; empty without the flag.
std::string WinogradText(const QuantizeMethod& method, const InferenceReply& reply) {
  if (method.winograd == "off") return "";
  if (reply.winograd_fits == 0) {
    return absl::StrCat("--winograd ", method.winograd,
                        " changes nothing: no 3x3 convolution of stride 1 behind the first layer");
  }
  return absl::StrCat("Winograd computes ", reply.winograd_taken, " of ", reply.winograd_fits,
                      " 3x3 convolutions of stride 1");
}

// Checks before any data is read.
absl::Status CheckTrained(const Checkpoint& checkpoint, const QuantizeArguments& arguments) {
  RUNNEL_ASSIGN_OR_RETURN(const int64_t labels, LabelsPerSample(checkpoint.model));
  if (checkpoint.model.tokens() > 0 || labels > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--checkpoint-dir ", arguments.checkpoint_dir, ": model ", checkpoint.model.name,
        " has tokens or several labels a sample, which INT8 inference does not know; "
        "evaluate it with eval"));
  }
  if (checkpoint.settings.recipe == "fp32") return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--checkpoint-dir ", arguments.checkpoint_dir, ": was trained with recipe ",
                   checkpoint.settings.recipe, ": quantize takes models of recipe fp32"));
}

}  // namespace

absl::Status QuantizeCommand(const QuantizeArguments& arguments, const CommandContext& context) {
  const bool reports = !arguments.report.empty();
  if (reports) RUNNEL_RETURN_IF_ERROR(Named("--report", CheckReportPath(arguments.report)));
  RUNNEL_ASSIGN_OR_RETURN(Checkpoint checkpoint,
                          NewestWeights(arguments.checkpoint_dir, context.logger));
  RUNNEL_RETURN_IF_ERROR(CheckTrained(checkpoint, arguments));
  RUNNEL_RETURN_IF_ERROR(CheckCanWrite(arguments.out));
  RunSettings settings = WithoutTraining(checkpoint.settings);
  if (arguments.data_dir.has_value()) settings.data_dir = *arguments.data_dir;
  RUNNEL_ASSIGN_OR_RETURN(const LoadedRun run, SetUpAndLoad(settings, context.logger));
  RUNNEL_RETURN_IF_ERROR(CheckModel(ModelSha256(checkpoint.model), run.setup,
                                    absl::StrCat("--checkpoint-dir ", arguments.checkpoint_dir)));
  QuantizedModel quantized;
  quantized.model_sha256 = ModelSha256(checkpoint.model);
  quantized.weights_sha256 = WeightsSha256(checkpoint.state);
  quantized.settings = settings;
  quantized.model = checkpoint.model;
  quantized.data_text = run.setup.data_text;
  quantized.step = checkpoint.step;
  quantized.method = arguments.method;
  quantized.method.samples = std::min(arguments.method.samples, run.data.train->size());
  RUNNEL_ASSIGN_OR_RETURN(const int64_t parameters, CountParameters(run.setup.model));
  RUNNEL_RETURN_IF_ERROR(MergePairs(checkpoint.model, checkpoint.state));
  RUNNEL_ASSIGN_OR_RETURN(
      const std::string job,
      QuantizeJob(
          CalibrationSamples(*run.data.train, settings.training.seed, quantized.method.samples),
          kBatch, checkpoint.model, std::move(checkpoint.state), quantized.method, reports));
  RUNNEL_ASSIGN_OR_RETURN(InferenceReply reply,
                          RunInferenceProcess(job, {settings.worker_threads}));
  quantized.graph = std::move(reply.graph);
  quantized.errors = reply.errors;
  RUNNEL_RETURN_IF_ERROR(WriteQuantizedModel(quantized, arguments.out));
  RUNNEL_RETURN_IF_ERROR(WriteReport(quantized, reply, arguments.report, "--report"));
  const std::string winograd = WinogradText(quantized.method, reply);
  if (!winograd.empty()) context.print(winograd);
  context.print(absl::StrFormat(
      "%s after %d steps in INT8 (%s; %d samples): %s, weights %d bytes, in FP32 %d",
      run.setup.model.name, quantized.step, MethodText(quantized.method), quantized.method.samples,
      arguments.out, reply.weight_bytes, parameters * static_cast<int64_t>(sizeof(float))));
  return absl::OkStatus();
}

namespace {

// Times the layers on one device and writes the report.
absl::Status Profile(const EvalQuantizedArguments& arguments, const QuantizedModel& quantized,
                     const std::string& where) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string job,
                          ProfileJob(quantized.graph, arguments.pipeline.backend));
  const absl::StatusOr<InferenceReply> reply = RunInferenceProcess(
      job, {arguments.pipeline.worker_threads, arguments.pipeline.backend_options});
  RUNNEL_RETURN_IF_ERROR(Named(where, reply.status()));
  return WriteReport(quantized, *reply, arguments.profile, "--profile");
}

// What computed the stages, each class once.
std::string ClassesText(const RunSummary& summary) {
  std::set<std::string> classes;
  for (const StageSummary& stage : summary.stages) classes.insert(stage.numerics_class);
  return absl::StrJoin(classes, ", ");
}

}  // namespace

absl::Status EvalQuantizedCommand(const EvalQuantizedArguments& arguments,
                                  const CommandContext& context) {
  const bool profiles = !arguments.profile.empty();
  if (profiles) RUNNEL_RETURN_IF_ERROR(Named("--profile", CheckReportPath(arguments.profile)));
  RUNNEL_ASSIGN_OR_RETURN(const QuantizedModel quantized, ReadQuantizedModel(arguments.quantized));
  if (!arguments.summary.empty() && arguments.summary != "-")
    RUNNEL_RETURN_IF_ERROR(CheckCanWrite(arguments.summary));
  RunSettings settings = WithoutTraining(quantized.settings);
  if (arguments.data_dir.has_value()) settings.data_dir = *arguments.data_dir;
  RUNNEL_ASSIGN_OR_RETURN(const RunSetup trained, SetUpRun(settings));
  settings = ForStages(std::move(settings), arguments.pipeline, trained.model.input);
  RUNNEL_ASSIGN_OR_RETURN(LoadedRun run, SetUpAndLoad(settings, context.logger));
  const std::string where = absl::StrCat("quantised model ", arguments.quantized);
  RUNNEL_RETURN_IF_ERROR(CheckModel(quantized.model_sha256, run.setup, where));
  if (profiles) RUNNEL_RETURN_IF_ERROR(Profile(arguments, quantized, where));
  const std::string name = run.setup.model.name;
  const int64_t samples = run.data.test->size();
  RUNNEL_ASSIGN_OR_RETURN(TrainingOutcome outcome,
                          EvaluateByStages(quantized, where, std::move(run), context));
  RunSummary& summary = outcome.summary;
  if (outcome.evaluation_s > 0)
    summary.samples_per_s = static_cast<double>(samples) / outcome.evaluation_s;
  const size_t stages = summary.plan.stages.size();
  context.print(absl::StrFormat(
      "%s in INT8 (%s; %d %s, %s) after %d steps: accuracy %.2f %%, loss %.4f on %d samples, %.0f "
      "samples/s",
      name, MethodText(quantized.method), stages, stages == 1 ? "stage" : "stages",
      ClassesText(summary), quantized.step, summary.accuracy * 100, summary.loss, samples,
      summary.samples_per_s));
  if (arguments.summary.empty()) return absl::OkStatus();
  summary.weights_sha256 = quantized.weights_sha256;
  const absl::Status written = WriteSummary(summary, arguments.summary);
  // The work is done: what cannot be written now is no wrong input.
  return written.ok() ? written : absl::InternalError(written.message());
}

}  // namespace runnel
