#include "central/run/sessions/predict_command.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "central/records/quantized_model.h"
#include "central/records/quantized_stages.h"
#include "central/run/run_setup.h"
#include "central/run/sessions/front.h"
#include "central/run/trained_weights.h"
#include "partition/export/npz_file.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/int8_inference.h"
#include "proto/process/atomic_stream.h"

namespace runnel {
namespace {

// A model and the data that it was trained on, which know how samples are normalised.
struct Predictor {
  Checkpoint model;  // of integers: as ComputeOutputs wants it
  LoadedRun run;
};

// One class a sample, of a recipe that a worker process evaluates without a run.
absl::Status CheckPredicts(const ModelSpec& model, const RunSettings& settings,
                           const std::string& where) {
  RUNNEL_ASSIGN_OR_RETURN(const int64_t labels, LabelsPerSample(model));
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", what));
  };
  if (model.tokens() > 0 || labels > 1) {
    return wrong(absl::StrCat("model ", model.name,
                              " has tokens or several labels a sample, which predict does not "
                              "write; eval gives its accuracy and loss"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  // Bits that changed while it trained are not those that a worker begins with.
  const bool changes_bits = settings.training.precision != TrainingSettings().precision;
  if (!format.integer_parameters() && !changes_bits) return absl::OkStatus();
  return wrong(absl::StrCat("was trained with recipe ", settings.recipe,
                            changes_bits ? " and --precision" : "",
                            ", which predict does not compute; eval gives its accuracy"));
}

RunSettings SettingsOf(RunSettings settings, const PredictArguments& arguments) {
  settings = WithoutTraining(std::move(settings));
  if (arguments.data_dir.has_value()) settings.data_dir = *arguments.data_dir;
  return settings;
}

absl::StatusOr<Predictor> Trained(const PredictArguments& arguments, Logger* logger) {
  const std::string where = absl::StrCat("--checkpoint-dir ", arguments.checkpoint_dir);
  Predictor predictor;
  RUNNEL_ASSIGN_OR_RETURN(predictor.model, NewestWeights(arguments.checkpoint_dir, logger));
  const Checkpoint& model = predictor.model;
  RUNNEL_RETURN_IF_ERROR(CheckPredicts(model.model, model.settings, where));
  RUNNEL_ASSIGN_OR_RETURN(predictor.run, SetUpAndLoad(SettingsOf(model.settings, arguments)));
  RUNNEL_RETURN_IF_ERROR(CheckModel(ModelSha256(model.model), predictor.run.setup, where));
  return predictor;
}

absl::StatusOr<Predictor> InIntegers(const PredictArguments& arguments) {
  const std::string where = absl::StrCat("quantised model ", arguments.quantized);
  RUNNEL_ASSIGN_OR_RETURN(const QuantizedModel quantized, ReadQuantizedModel(arguments.quantized));
  Predictor predictor;
  RUNNEL_ASSIGN_OR_RETURN(predictor.run, SetUpAndLoad(SettingsOf(quantized.settings, arguments)));
  RUNNEL_RETURN_IF_ERROR(CheckModel(quantized.model_sha256, predictor.run.setup, where));
  absl::StatusOr<QuantizedStages> stages = CutAtLayers(predictor.run.setup.model, quantized.graph);
  if (!stages.ok()) {
    return absl::Status(stages.status().code(),
                        absl::StrCat(where, ": ", stages.status().message()));
  }
  Checkpoint& model = predictor.model;
  model.settings = predictor.run.setup.settings;
  model.settings.recipe = std::string(kInt8Inference);
  model.step = quantized.step;
  model.model = std::move(stages->model);
  model.state = std::move(stages->state);
  return predictor;
}

// A class's name as a field of RFC 4180.
std::string Field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

// index,class,probability of the class: softmax of the outputs.
std::string CsvLine(int64_t index, absl::Span<const float> outputs, const Dataset& names) {
  // Ties go to the first class, as where an evaluation counts.
  const auto most = std::max_element(outputs.begin(), outputs.end());
  double sum = 0;
  for (const float output : outputs) sum += std::exp(static_cast<double>(output) - *most);
  return absl::StrFormat("%d,%s,%.6g\n", index, Field(names.class_name(most - outputs.begin())),
                         1 / sum);
}

// Streams the predictions to the file.
absl::Status Write(const Predictor& predictor, const Dataset& samples, const std::string& path) {
  const bool is_table = absl::EndsWith(path, ".csv");
  const int64_t classes = predictor.model.model.classes;
  RUNNEL_ASSIGN_OR_RETURN(AtomicStream file, AtomicStream::Open(path));
  RUNNEL_RETURN_IF_ERROR(file.Append(is_table ? "index,class,probability\n"
                                              : NpyHeader("<f4", {samples.size(), classes})));
  const auto append = [&](int64_t first, absl::Span<const float> outputs) -> absl::Status {
    const auto bad =
        std::find_if(outputs.begin(), outputs.end(), [](float v) { return !std::isfinite(v); });
    if (bad != outputs.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the model gives ", *bad, " for sample ",
                                                     first + (bad - outputs.begin()) / classes,
                                                     ": its weights are no use"));
    }
    if (!is_table) {
      return file.Append(
          {reinterpret_cast<const char*>(outputs.data()), outputs.size() * sizeof(float)});
    }
    std::string lines;
    const auto width = static_cast<size_t>(classes);
    for (size_t at = 0; at < outputs.size(); at += width)
      lines += CsvLine(first++, outputs.subspan(at, width), samples);
    return file.Append(lines);
  };
  RUNNEL_RETURN_IF_ERROR(ComputeOutputs(predictor.model, samples, append));
  return file.Commit();
}

}  // namespace

absl::Status PredictCommand(const PredictArguments& arguments, const CommandContext& context) {
  if (arguments.checkpoint_dir.empty() == arguments.quantized.empty()) {
    return absl::InvalidArgumentError(
        "predict: give either --checkpoint-dir or --quantized, see runnel-central predict --help");
  }
  if (!absl::EndsWith(arguments.out, ".csv") && !absl::EndsWith(arguments.out, ".npy")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--out ", arguments.out, ": ends neither in .csv (classes) nor in .npy (all outputs)"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const Predictor predictor, arguments.quantized.empty()
                                                         ? Trained(arguments, context.logger)
                                                         : InIntegers(arguments));
  std::unique_ptr<Dataset> given;
  if (!arguments.data.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(given, predictor.run.data.train->Unlabelled(arguments.data));
  }
  const Dataset& samples = given == nullptr ? *predictor.run.data.test : *given;
  RUNNEL_RETURN_IF_ERROR(Write(predictor, samples, arguments.out));
  context.print(absl::StrCat("wrote ", arguments.out, ": ", samples.size(), " predictions of ",
                             predictor.run.setup.model.name, " after ", predictor.model.step,
                             " steps"));
  return absl::OkStatus();
}

}  // namespace runnel
