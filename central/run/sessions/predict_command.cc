#include "central/run/sessions/predict_command.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "central/data/dataset.h"
#include "central/data/joined_dataset.h"
#include "central/records/quantized_model.h"
#include "central/records/quantized_stages.h"
#include "central/run/run_setup.h"
#include "central/run/sessions/front.h"
#include "central/run/trained_weights.h"
#include "partition/export/npz_file.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/int8_inference.h"
#include "proto/process/atomic_file.h"
#include "proto/process/atomic_stream.h"

namespace runnel {
namespace {

// Classes of a sample on the screen: so many at most, the others with at least such a share.
constexpr size_t kShownClasses = 3;
constexpr double kLeastShown = 0.001;

// A model, and what is predicted with it.
struct Predictor {
  Checkpoint model;  // of integers: as ComputeOutputs wants it
  std::unique_ptr<Dataset> samples;
};

// Of a recipe that a worker process evaluates without a run.
absl::Status CheckPredicts(const RunSettings& settings, const std::string& where) {
  RUNNEL_ASSIGN_OR_RETURN(const NumberFormat format, FormatOf(settings));
  // Bits that changed while it trained are not those that a worker begins with.
  const bool changes_bits = settings.training.precision != TrainingSettings().precision;
  if (!format.integer_parameters() && !changes_bits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      where, ": was trained with recipe ", settings.recipe, changes_bits ? " and --precision" : "",
      ", which predict does not compute; eval gives its accuracy"));
}

RunSettings SettingsOf(RunSettings settings, const PredictArguments& arguments) {
  settings = WithoutTraining(std::move(settings));
  if (arguments.data_dir.has_value()) settings.data_dir = *arguments.data_dir;
  return settings;
}

// Samples of `kind` that lie in the arguments' files.
absl::StatusOr<std::unique_ptr<Dataset>> GivenSamples(const Dataset& kind,
                                                      const PredictArguments& arguments) {
  if (!arguments.data.empty()) {
    const std::string start = absl::StrCat(kind.Describe().kind, ":");
    if (start.size() == 1) return kind.Unlabelled(arguments.data);
    if (!absl::StartsWith(arguments.data, start)) {
      return absl::InvalidArgumentError(absl::StrCat("--data ", arguments.data,
                                                     ": the model was trained on ", start,
                                                     "..., and takes samples of that kind"));
    }
    return kind.Unlabelled(arguments.data.substr(start.size()));
  }
  std::vector<std::unique_ptr<Dataset>> parts;
  for (const std::string& file : arguments.files) {
    RUNNEL_ASSIGN_OR_RETURN(parts.emplace_back(), kind.Unlabelled(file));
  }
  if (parts.size() == 1) return std::move(parts[0]);
  return std::make_unique<data::JoinedDataset>(std::move(parts));
}

// The samples, and in `setup` the run's, where the data set had to be loaded. data_text: what the
// model's file says of its data; empty: the data set has to be where it was.
absl::StatusOr<std::unique_ptr<Dataset>> SamplesOf(const PredictArguments& arguments,
                                                   const RunSettings& settings,
                                                   const std::string& data_text, Logger* logger,
                                                   std::optional<RunSetup>& setup) {
  const bool are_given = !arguments.files.empty() || !arguments.data.empty();
  if (are_given && !data_text.empty()) {
    RUNNEL_ASSIGN_OR_RETURN(const DataDescription description, ParseDescription(data_text));
    RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<Dataset> kind, DescribedDataset(description));
    return GivenSamples(*kind, arguments);
  }
  RUNNEL_ASSIGN_OR_RETURN(LoadedRun run, SetUpAndLoad(SettingsOf(settings, arguments), logger));
  setup = std::move(run.setup);
  if (!are_given) return std::move(run.data.test);
  return GivenSamples(*run.data.train, arguments);
}

// Whether what comes behind a token changes what the model says of it.
bool SeesWhatFollows(const ModelSpec& model) {
  for (const LayerSpec& layer : model.layers) {
    for (const OpSpec& op : layer.ops) {
      if (op.kind == OpKind::kAttention && op.bidirectional) return true;
    }
  }
  return false;
}

// InvalidArgument: samples that the model does not take.
absl::Status CheckFits(const Dataset& samples, const ModelSpec& model, const std::string& where) {
  RUNNEL_ASSIGN_OR_RETURN(const int64_t labels, LabelsPerSample(model));
  const bool fits = samples.sample_shape() == model.input && samples.classes() == model.classes &&
                    samples.tokens() <= model.tokens() &&
                    (samples.tokens() > 0) == (model.tokens() > 0) &&
                    samples.labels_per_sample() == labels;
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": its data are ", samples.sample_shape().ToString(), " of ", samples.classes(),
        " classes, its model takes ", model.input.ToString(), " of ", model.classes));
  }
  if (!SeesWhatFollows(model)) return absl::OkStatus();
  for (int64_t i = 0; i < samples.size(); ++i) {
    if (samples.predicted_label(i) + 1 == labels) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(samples.sample_name(i), ": has ", samples.predicted_label(i) + 1,
                     " tokens; the model looks at all its ", labels, " positions, give as many"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Predictor> Trained(const PredictArguments& arguments, Logger* logger) {
  const std::string where = absl::StrCat("--checkpoint-dir ", arguments.checkpoint_dir);
  Predictor predictor;
  RUNNEL_ASSIGN_OR_RETURN(predictor.model, NewestWeights(arguments.checkpoint_dir, logger));
  const Checkpoint& model = predictor.model;
  RUNNEL_RETURN_IF_ERROR(CheckPredicts(model.settings, where));
  std::optional<RunSetup> setup;
  RUNNEL_ASSIGN_OR_RETURN(predictor.samples,
                          SamplesOf(arguments, model.settings, model.data_text, logger, setup));
  if (setup.has_value())
    RUNNEL_RETURN_IF_ERROR(CheckModel(ModelSha256(model.model), *setup, where));
  RUNNEL_RETURN_IF_ERROR(CheckFits(*predictor.samples, model.model, where));
  return predictor;
}

absl::StatusOr<Predictor> InIntegers(const PredictArguments& arguments, Logger* logger) {
  const std::string where = absl::StrCat("quantised model ", arguments.quantized);
  RUNNEL_ASSIGN_OR_RETURN(QuantizedModel quantized, ReadQuantizedModel(arguments.quantized));
  // Files that do not hold the model: it follows from the settings.
  const bool has_model = !quantized.model.layers.empty();
  Predictor predictor;
  std::optional<RunSetup> setup;
  RUNNEL_ASSIGN_OR_RETURN(
      predictor.samples, SamplesOf(arguments, quantized.settings,
                                   has_model ? quantized.data_text : std::string(), logger, setup));
  if (setup.has_value()) {
    RUNNEL_RETURN_IF_ERROR(CheckModel(quantized.model_sha256, *setup, where));
    quantized.model = setup->model;
  }
  RUNNEL_RETURN_IF_ERROR(CheckFits(*predictor.samples, quantized.model, where));
  absl::StatusOr<QuantizedStages> stages = CutAtLayers(quantized.model, quantized.graph);
  if (!stages.ok()) {
    return absl::Status(stages.status().code(),
                        absl::StrCat(where, ": ", stages.status().message()));
  }
  Checkpoint& model = predictor.model;
  model.settings = std::move(quantized.settings);
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

// "NAME: CLASS 97.2 %, CLASS 1.9 %": the likeliest classes of a sample.
std::string ScreenLine(int64_t index, absl::Span<const float> outputs, const Dataset& names) {
  std::vector<size_t> order(outputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return outputs[a] > outputs[b]; });
  double sum = 0;
  for (const float output : outputs)
    sum += std::exp(static_cast<double>(output) - outputs[order[0]]);
  std::string line = Printable(names.sample_name(index));
  for (size_t i = 0; i < std::min(order.size(), kShownClasses); ++i) {
    const double share = std::exp(static_cast<double>(outputs[order[i]]) - outputs[order[0]]) / sum;
    if (i > 0 && share < kLeastShown) break;
    absl::StrAppendFormat(&line, "%s %s %.1f %%", i == 0 ? ":" : ",",
                          Printable(names.class_name(static_cast<int64_t>(order[i]))), share * 100);
  }
  return line;
}

// Calls use(first, outputs) with outputs that are numbers. InvalidArgument names the first sample whose
// are not.
absl::Status Compute(const Predictor& predictor, const UseOutputsFn& use) {
  const int64_t classes = predictor.model.model.classes;
  return ComputeOutputs(
      predictor.model, *predictor.samples,
      [&](int64_t first, absl::Span<const float> outputs) -> absl::Status {
        const auto bad =
            std::find_if(outputs.begin(), outputs.end(), [](float v) { return !std::isfinite(v); });
        if (bad == outputs.end()) return use(first, outputs);
        return absl::InvalidArgumentError(absl::StrCat("the model gives ", *bad, " for sample ",
                                                       first + (bad - outputs.begin()) / classes,
                                                       ": its weights are no use"));
      });
}

absl::Status Print(const Predictor& predictor, const CommandContext& context) {
  const auto width = static_cast<size_t>(predictor.model.model.classes);
  return Compute(predictor, [&](int64_t first, absl::Span<const float> outputs) {
    for (size_t at = 0; at < outputs.size(); at += width)
      context.print(ScreenLine(first++, outputs.subspan(at, width), *predictor.samples));
    return absl::OkStatus();
  });
}

// Streams the predictions to the file.
absl::Status Write(const Predictor& predictor, const std::string& path) {
  const bool is_table = absl::EndsWith(path, ".csv");
  const int64_t classes = predictor.model.model.classes;
  const Dataset& samples = *predictor.samples;
  RUNNEL_ASSIGN_OR_RETURN(AtomicStream file, AtomicStream::Open(path));
  RUNNEL_RETURN_IF_ERROR(file.Append(is_table ? "index,class,probability\n"
                                              : NpyHeader("<f4", {samples.size(), classes})));
  const auto append = [&](int64_t first, absl::Span<const float> outputs) -> absl::Status {
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
  RUNNEL_RETURN_IF_ERROR(Compute(predictor, append));
  return file.Commit();
}

absl::Status CheckArguments(const PredictArguments& arguments) {
  if (arguments.checkpoint_dir.empty() == arguments.quantized.empty()) {
    return absl::InvalidArgumentError(
        "predict: give either --checkpoint-dir or --quantized, see runnel-central predict --help");
  }
  if (!arguments.files.empty() && !arguments.data.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--data ", arguments.data, ": leave it out, or ",
                                                   arguments.files[0], " and all other files"));
  }
  const std::string& out = arguments.out;
  if (out.empty()) return absl::OkStatus();
  if (absl::EndsWith(out, ".csv") || absl::EndsWith(out, ".npy")) return CheckCanWrite(out);
  return absl::InvalidArgumentError(
      absl::StrCat("--out ", out, ": ends neither in .csv (classes) nor in .npy (all outputs)"));
}

}  // namespace

absl::Status PredictCommand(const PredictArguments& arguments, const CommandContext& context) {
  RUNNEL_RETURN_IF_ERROR(CheckArguments(arguments));
  RUNNEL_ASSIGN_OR_RETURN(Predictor predictor, arguments.quantized.empty()
                                                   ? Trained(arguments, context.logger)
                                                   : InIntegers(arguments, context.logger));
  if (!arguments.backend.empty()) predictor.model.settings.backend = arguments.backend;
  if (arguments.out.empty()) return Print(predictor, context);
  RUNNEL_RETURN_IF_ERROR(Write(predictor, arguments.out));
  context.print(absl::StrCat("wrote ", arguments.out, ": ", predictor.samples->size(),
                             " predictions of ", predictor.model.model.name, " after ",
                             predictor.model.step, " steps"));
  return absl::OkStatus();
}

}  // namespace runnel
