#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "central/cli/lab/lab_commands.h"
#include "central/run/workers/profile_workers.h"
#include "partition/zoo/zoo.h"
#include "predictor/profiles/sub_models.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/recipe_family.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

// In UTC, as 2026-11-21.
std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm day;
  char text[16];
  return {text, std::strftime(text, sizeof(text), "%F", gmtime_r(&now, &day))};
}

// "vgg11/8": the model, at an eighth of the batch size.
std::vector<std::string> ProfiledByDefault() {
  std::vector<std::string> models;
  for (const ModelRow& row : BuiltinModels()) {
    if (row.profile_divisor == 0) continue;
    models.emplace_back(row.name);
    if (row.profile_divisor > 1) absl::StrAppend(&models.back(), "/", row.profile_divisor);
  }
  return models;
}

struct ProfileArguments {
  ProfileJob job;
  DeviceProfile profile;  // what the flags say about the configuration
  std::vector<std::string> models = ProfiledByDefault();
  std::vector<std::string> backend_options;
  int64_t batch_size = 16;
  int64_t max_macs = kMaxProfiledMacs;
  int extra = 12;
  uint64_t seed = 1;
  std::string out;
  bool second_pass = false;
};

// As ProfiledByDefault writes it.
absl::StatusOr<ProfiledModel> ReadModel(const std::string& text, const ProfileArguments& a) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  int64_t divisor = 1;
  if (!parts.second.empty() && (!absl::SimpleAtoi(parts.second, &divisor) || divisor < 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--models ", text, ": after '/' stands what the batch size is divided by"));
  }
  ProfiledModel profiled;
  RUNNEL_ASSIGN_OR_RETURN(profiled.model, MakeModel(parts.first));
  profiled.batch =
      std::max<int64_t>(a.batch_size / divisor, profiled.model.has_batch_norm() ? 2 : 1);
  RUNNEL_ASSIGN_OR_RETURN(profiled.ranges,
                          ProfileSample(profiled.model, a.max_macs, a.extra, a.seed));
  return profiled;
}

// The second pass goes beside the first: same device, same sub-models.
absl::Status AddSecondPass(const ProfiledDevice& device, DeviceProfile& profile) {
  if (device.numerics_class != profile.numerics_class ||
      device.times.size() != profile.sub_models.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the first pass was measured on ", profile.numerics_class, " with ",
                     profile.sub_models.size(), " sub-models, this one on ", device.numerics_class,
                     " with ", device.times.size(), ": measure both with the same flags"));
  }
  for (size_t i = 0; i < device.times.size(); ++i) {
    SubModelTime& row = profile.sub_models[i];
    const SubModelTime& again = device.times[i];
    if (row.model != again.model || !(row.range == again.range) || row.batch != again.batch) {
      return absl::InvalidArgumentError(
          absl::StrCat("sub-model ", i,
                       " of the first pass is another than this one's: measure "
                       "both with the same flags"));
    }
    row.seconds_2 = again.seconds_1;
    row.spread_2 = again.spread_1;
  }
  return absl::OkStatus();
}

absl::StatusOr<DeviceProfile> WithDevice(const ProfileArguments& a, const ProfiledDevice& device,
                                         const std::string& path) {
  DeviceProfile profile = a.profile;
  if (a.second_pass) {
    RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxProfileBytes));
    RUNNEL_ASSIGN_OR_RETURN(profile, ParseProfile(text));
    absl::StrAppend(&profile.date, ", ", a.profile.date);
    RUNNEL_RETURN_IF_ERROR(AddSecondPass(device, profile));
    return profile;
  }
  profile.numerics_class = device.numerics_class;
  profile.threads = a.job.worker_threads;
  profile.recipe = a.job.recipe;
  profile.backend = a.job.backend;
  profile.batch = a.batch_size;
  if (a.job.nominal_step_ns > 0) profile.clock = absl::StrCat(a.job.nominal_step_ns, " ns a step");
  profile.repetitions = a.job.repetitions;
  profile.sub_models = device.times;
  return profile;
}

// Before minutes of measuring: what is going to be written must be readable, and a first pass
// there.
absl::Status CheckBeforehand(const ProfileArguments& a) {
  if (const absl::Status status = ParseRecipeName(a.job.recipe).status(); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--recipe: ", status.message()));
  }
  DeviceProfile probe = a.profile;
  probe.recipe = a.job.recipe;
  probe.backend = a.job.backend;
  probe.numerics_class = "any";
  probe.batch = a.batch_size;
  probe.repetitions = a.job.repetitions;
  probe.sub_models = {{"any", {0, 0}, a.batch_size, 1, 0, 0, 0}};
  if (const absl::Status status = ParseProfile(FormatProfile(probe)).status(); !status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--name, --family, --host, --date, --load are lines of a file: ", status.message()));
  }
  // Measuring takes minutes.
  RUNNEL_RETURN_IF_ERROR(CheckCanWrite(a.out));
  if (!a.second_pass || a.job.local_workers + a.job.workers > 1) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(a.out, kMaxProfileBytes));
  const absl::Status status = ParseProfile(text).status();
  if (status.ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(a.out, ": ", status.message()));
}

absl::Status Profile(ProfileArguments a, const CommandContext& context) {
  if (a.profile.date.empty()) a.profile.date = Today();
  RUNNEL_RETURN_IF_ERROR(CheckBeforehand(a));
  RUNNEL_ASSIGN_OR_RETURN(a.job.backend_options, BackendOptions::FromFlag(a.backend_options));
  for (const std::string& text : a.models) {
    RUNNEL_ASSIGN_OR_RETURN(ProfiledModel model, ReadModel(text, a));
    a.job.models.push_back(std::move(model));
  }
  RUNNEL_ASSIGN_OR_RETURN(
      const std::vector<ProfiledDevice> devices,
      ProfileWorkers(a.job, {context.control, context.clock, context.logger, context.enrolment}));
  for (const ProfiledDevice& device : devices) {
    const std::string path = devices.size() == 1 ? a.out : absl::StrCat(a.out, ".", device.name);
    RUNNEL_ASSIGN_OR_RETURN(const DeviceProfile profile, WithDevice(a, device, path));
    const std::string text = FormatProfile(profile);
    // What is written must be readable: a flag may hold what no file can.
    RUNNEL_RETURN_IF_ERROR(ParseProfile(text).status());
    RUNNEL_RETURN_IF_ERROR(WriteFileAtomically(path, {absl::string_view(text)}));
    context.print(absl::StrCat(device.name, " (", device.numerics_class, "): ", device.times.size(),
                               " sub-models in ", path));
  }
  return absl::OkStatus();
}

void AddMeasureFlags(const Command& app, ProfileArguments& a) {
  app.Add("--models", a.models,
          absl::StrCat("models to measure, of ", absl::StrJoin(ModelNames(), ", "),
                       "; vgg11/8: at an eighth of the batch size"))
      .WithCommas()
      .ShowDefault();
  app.Add("--batch-size", a.batch_size, "samples of a micro-batch").Count().ShowDefault();
  app.Add("--recipe", a.job.recipe, absl::StrCat("training arithmetic: ", RecipeHelp()))
      .ShowDefault();
  app.Add("--backend", a.job.backend,
          "backend of the workers, by name; auto: the best of each worker")
      .ShowDefault();
  app.Add("--repetitions", a.job.repetitions, "measurements in a median")
      .Between(7, 1000)
      .ShowDefault();
  app.Add("--burst-ms", a.job.burst_ms,
          "least time of one measurement; longer than the period of a processor quota")
      .Between(0.0, 60'000.0)
      .ShowDefault();
  app.Add("--nominal-step-ns", a.job.nominal_step_ns,
          "scale times to a processor whose clock probe takes this long a step, so that a "
          "changing clock does not count; 0: wall time")
      .Between(0.0, 1000.0)
      .ShowDefault();
  app.Add("--max-macs", a.max_macs, "most multiply-adds of a range of layers, of one sample")
      .Positive()
      .ShowDefault();
  app.Add("--extra", a.extra,
          "ranges of each model beside the ten representatives and the single layers")
      .Between(0, 10'000)
      .ShowDefault();
  app.Add("--seed", a.seed, "seed that chooses the --extra ranges").ShowDefault();
}

void AddWorkerFlags(const Command& app, ProfileArguments& a) {
  app.Add("--local-workers", a.job.local_workers, "workers started on this host")
      .Between(0, 64)
      .ShowDefault();
  app.Add("--workers", a.job.workers, "workers that dial in").Between(0, 1024).ShowDefault();
  app.Add("--worker-threads", a.job.worker_threads, "compute threads of a worker")
      .Between(1, 256)
      .ShowDefault();
  app.Add("--backend-option", a.backend_options,
          absl::StrCat("of local workers: ", BackendOptionsHelp()))
      .ValueNamed("BACKEND.NAME=VALUE")
      .OneEachTime();
  app.Add("--listen", a.job.listen, "address for dialling workers").ShowDefault();
  app.Add("--worker-timeout-s", a.job.worker_timeout_s, "how long to wait for workers")
      .Count()
      .ShowDefault();
}

void AddFileFlags(const Command& app, ProfileArguments& a) {
  app.Add("--out", a.out, "file to write; with several devices one each, .NAME appended")
      .Required();
  app.AddSwitch("--second-pass", a.second_pass,
                "measure again, beside the times in the file: gives the noise floor");
  app.Add("--name", a.profile.name, "name of the configuration").Required();
  app.Add("--family", a.profile.family,
          "what distinguishes the configurations of this family, e.g. quota")
      .Required();
  app.Add("--host", a.profile.host, "processor and machine, for people").Required();
  app.Add("--date", a.profile.date, "date of this pass, for people (default: today)");
  app.Add("--cpu-share", a.profile.cpu_share, "processor time of the workers, in cores a thread")
      .Between(1e-3, 1.0)
      .ShowDefault();
  app.Add("--load", a.profile.load, "other load of the machine, for people").ShowDefault();
}

}  // namespace

Subcommand AddProfile(const Command& program) {
  const Command app = program.AddCommand(
      "profile", "Measure sub-models on live workers: the latency predictor's training data");
  const auto arguments = std::make_shared<ProfileArguments>();
  AddMeasureFlags(app, *arguments);
  AddWorkerFlags(app, *arguments);
  AddFileFlags(app, *arguments);
  app.Footer(R"(
Examples:
  this host's own layer times
    runnel-lab profile --models lenet,har_cnn --name laptop --family laptop \
        --host "laptop of 2021" --out laptop.profile)");
  return {app, [arguments](const CommandContext& context) { return Profile(*arguments, context); }};
}

}  // namespace runnel
