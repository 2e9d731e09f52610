#include "central/settings/run_settings.h"

#include <cmath>
#include <functional>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/base/codecs.h"
#include "tests/central/sample_model.h"

namespace runnel {
namespace {

using ::testing::HasSubstr;

// No field has its default.
RunSettings AllSet() {
  RunSettings s;
  s.model = "har_cnn";
  s.dataset = "ucihar";
  s.data_dir = "/data/é \"quoted\"";
  s.local_workers = 3;
  s.workers = 2;
  s.schedule = "gpipe";
  s.policy = "dp";
  s.cost = "predicted";
  s.predictor_profiles = "/p";
  s.codec_forward = Codecs("mbq:4");
  s.codec_backward = Codecs("stochastic:8");
  s.bits = "4/8";
  s.recipe = "niti";
  s.backend = "ref";
  s.caps = {4, 3, 1};
  s.epochs = 5;
  s.max_batches = 17;
  s.batch_size = 33;
  s.micro_batches = 3;
  s.lr = 0.1;
  s.momentum = 0.3;
  s.weight_decay = 1e-5;
  s.milestones = {2, 3};
  s.has_milestones = true;
  s.milestone_factor = 1.0 / 3;
  s.gradient_bits = "0:3/2,4:1";
  s.look_ahead = 0.5;
  s.aggregate_every = 5;
  s.stale_rate_steps = 300;
  s.seed = 9007199254740993;  // no double
  s.barrier_every = 7;
  s.eval_every = 0;
  s.eval_batch_size = 100;
  s.link_mbps = 12.5;
  s.link_delay_ms = 0.25;
  s.worker_threads = 2;
  s.checkpoint_dir = "/c";
  s.journal = "/j";
  s.summary = "-";
  s.listen = "0.0.0.0:5000";
  s.metrics_port = 9100;
  s.worker_timeout_s = 5;
  return s;
}

TEST(RunSettings, JsonRoundTrip) {
  for (const RunSettings& settings : {RunSettings(), AllSet()}) {
    const auto back = SettingsFromJson(SettingsToJson(settings));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == settings) << SettingsToJson(*back);
  }
}

TEST(RunSettings, NoMilestonesAndTheModelsDiffer) {
  RunSettings none;
  none.has_milestones = true;
  EXPECT_THAT(SettingsToJson(none), HasSubstr("\"milestones\":[]"));
  EXPECT_TRUE(SettingsFromJson(SettingsToJson(none))->has_milestones);
  EXPECT_THAT(SettingsToJson(RunSettings()), ::testing::Not(HasSubstr("milestones")));
}

TEST(RunSettings, ConfigFileMaySayLittle) {
  const auto settings = SettingsFromJson(R"({"batch-size": 8, "lr": 1})");
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->batch_size, 8);
  EXPECT_EQ(settings->lr, 1.0);
  EXPECT_EQ(settings->model, "lenet");
}

TEST(RunSettings, BadJsonNamesTheKey) {
  const struct {
    const char* json;
    const char* message;
  } kCases[] = {
      {R"({"batch_size": 8})", "'batch_size' is not known"},
      {R"({"batch-size": "8"})", "'batch-size': needs an integer, has string"},
      {R"({"batch-size": 8.5})", "'batch-size': needs an integer"},
      {R"({"seed": 18446744073709551615})", "'seed': 18446744073709551615 is too large"},
      {R"({"lr": true})", "'lr': needs a number"},
      {R"({"model": null})", "'model': needs a string"},
      {R"({"caps": 3})", "'caps': needs an array"},
      {R"({"caps": [1, "2"]})", "'caps': needs an integer"},
      {R"({"lr": 0.1,})", "JSON: "},
      {R"([1])", "needs a JSON object"},
      {"", "JSON: "},
  };
  for (const auto& c : kCases) {
    const auto settings = SettingsFromJson(c.json);
    ASSERT_FALSE(settings.ok()) << c.json;
    EXPECT_EQ(settings.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(settings.status().message()), HasSubstr(c.message));
  }
  const auto deep = SettingsFromJson(std::string(100000, '['));
  EXPECT_THAT(std::string(deep.status().message()), HasSubstr("nested too deeply"));
  const auto long_token = SettingsFromJson("\"" + std::string(100000, 'x'));
  EXPECT_LT(long_token.status().message().size(), 300u);
}

TEST(RunSettings, DefaultsComeFromTheModel) {
  const ModelSpec model = testing::SampleModel();
  const RunSettings filled = WithDefaults(RunSettings(), model, "digits", 4);
  EXPECT_EQ(filled.dataset, "digits");
  EXPECT_EQ(filled.epochs, model.defaults.epochs);
  EXPECT_EQ(filled.batch_size, model.defaults.batch_size);
  EXPECT_EQ(filled.eval_batch_size, model.defaults.batch_size);
  EXPECT_EQ(filled.micro_batches, 4);
  EXPECT_EQ(filled.lr, model.defaults.learning_rate);
  EXPECT_EQ(filled.momentum, model.defaults.momentum);
  EXPECT_EQ(filled.weight_decay, model.defaults.weight_decay);
  EXPECT_EQ(filled.milestones, model.defaults.milestones);
  EXPECT_EQ(filled.milestone_factor, model.defaults.milestone_factor);
  EXPECT_TRUE(WithDefaults(AllSet(), model, "digits", 4) == AllSet());
  RunSettings none;
  none.has_milestones = true;
  EXPECT_TRUE(WithDefaults(none, model, "digits", 4).milestones.empty());
}

TEST(RunSettings, CheckAcceptsWhatIsRight) {
  EXPECT_TRUE(CheckSettings(RunSettings()).ok()) << CheckSettings(RunSettings());
  RunSettings all = AllSet();
  all.look_ahead = all.aggregate_every = 0;  // of FP32, and only one of them
  EXPECT_TRUE(CheckSettings(all).ok()) << CheckSettings(all);
  RunSettings plain;
  plain.local_workers = 0;
  plain.momentum = plain.lr = plain.weight_decay = 0;
  EXPECT_TRUE(CheckSettings(plain).ok()) << CheckSettings(plain);
}

TEST(RunSettings, CheckNamesFlagValueAndRule) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const struct {
    std::function<void(RunSettings&)> change;
    const char* message;
  } kCases[] = {
      {[](auto& s) { s.batch_size = 0; }, "--batch-size 0: must be at least 1"},
      {[](auto& s) { s.batch_size = -2; }, "--batch-size -2: must be at least 1"},
      {[](auto& s) { s.batch_size = int64_t{1} << 62; }, "must be at most 1000000000"},
      {[](auto& s) { s.epochs = 0; }, "--epochs 0: must be at least 1"},
      {[](auto& s) { s.micro_batches = 0; }, "--micro-batches 0: must be at least 1"},
      {[](auto& s) { s.max_batches = -1; }, "--max-batches -1: must be at least 0"},
      {[](auto& s) { s.eval_every = -2; }, "--eval-every -2: must be at least -1"},
      {[](auto& s) { s.eval_batch_size = 0; }, "--eval-batch-size 0: must be at least 1"},
      {[](auto& s) { s.barrier_every = 0; }, "--barrier-every 0: must be at least 1"},
      {[](auto& s) { s.lr = kNan; }, "--lr nan: must be a finite number"},
      {[](auto& s) { s.lr = kInf; }, "--lr inf: must be a finite number"},
      {[](auto& s) { s.lr = -0.5; }, "--lr -0.5: must be at least 0"},
      {[](auto& s) { s.weight_decay = -0.1; }, "--weight-decay -0.1: must be at least 0"},
      {[](auto& s) { s.look_ahead = 1.5; }, "--look-ahead 1.5: must be at most 1"},
      {[](auto& s) { s.look_ahead = -0.5; }, "--look-ahead -0.5: must be at least 0"},
      {[](auto& s) { s.look_ahead = s.aggregate_every = 1; }, "--aggregate-every 1: --look-ahead"},
      {[](auto& s) {
         s.recipe = "niti";
         s.look_ahead = 1;
       },
       "--look-ahead: recipe niti"},
      {[](auto& s) { s.momentum = 1; }, "--momentum 1: must be below 1"},
      {[](auto& s) { s.momentum = -0.1; }, "--momentum -0.1: must be at least 0"},
      {[](auto& s) { s.milestone_factor = kNan; }, "--milestone-factor nan"},
      {[](auto& s) { s.link_mbps = -1; }, "--link-mbps -1: must be at least 0"},
      {[](auto& s) { s.link_delay_ms = kNan; }, "--link-delay-ms nan"},
      {[](auto& s) { s.local_workers = -1; }, "--local-workers -1: must be at least 0"},
      {[](auto& s) { s.local_workers = 1 << 20; }, "--local-workers 1048576: must be at most 1024"},
      {[](auto& s) { s.workers = -3; }, "--workers -3: must be at least 0"},
      {[](auto& s) { s.workers = 1, s.local_workers = 0; }, "--workers 1: needs --local-workers"},
      {[](auto& s) { s.worker_threads = 0; }, "--worker-threads 0: must be at least 1"},
      {[](auto& s) { s.worker_timeout_s = 0; }, "--worker-timeout-s 0: must be at least 1"},
      {[](auto& s) { s.metrics_port = 65536; }, "--metrics-port 65536: must be at most 65535"},
      {[](auto& s) { s.metrics_port = -2; }, "--metrics-port -2: must be at least 0"},
      {[](auto& s) { s.seed = -1; }, "--seed -1: must be at least 0"},
      {[](auto& s) {
         s.caps = {2, 0};
       },
       "--caps 2,0: must be at least 1"},
      {[](auto& s) {
         s.caps = {1, 2};
       },
       "--caps 1,2: must not grow"},
      {[](auto& s) {
         s.milestones = {3, 3};
       },
       "--milestones 3,3: must be in ascending order"},
      {[](auto& s) { s.milestones = {0}; }, "--milestones 0: must be at least 1"},
      {[](auto& s) { s.model = ""; }, "--model '': must be given"},
  };
  for (const auto& c : kCases) {
    RunSettings settings;
    c.change(settings);
    const absl::Status status = CheckSettings(settings);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

}  // namespace
}  // namespace runnel
