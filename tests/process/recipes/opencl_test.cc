// Real workers that compute on an OpenCL device: the bytes of the CPU's, also when it is lost in
// the middle; one clear line where there is no device, or one that computes wrong. Skipped without
// a driver. Under PoCL, which computes on the CPU: correctness only, never speed.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/process/central_runs.h"

namespace runnel::opencl_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// clang-format off
const Words kRun = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--recipe", "niti",
                    "--batch-size", "8", "--eval-every", "-1", "--eval-batch-size", "50", "--schedule", "sync_1f1b"};
// clang-format on
const Words kShort = With(kRun, {"--micro-batches", "2", "--max-batches", "4"});
const Words kOpenCl = {"--backend", "opencl", "--local-workers", "1"};
// PoCL's, by a part of its platform's name.
const Words kNamedDevice = {"--backend-option", "opencl.device=portable"};

std::string ReadWhole(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class OpenClTraining : public testing::Test {
 protected:
  void SetUp() override {
    if (!testing::Matches(Contains("opencl"))(BackendNames())) GTEST_SKIP() << "no OpenCL driver";
  }
};

// Without micro-batches, and with sums of gradients in 64 bits.
TEST_F(OpenClTraining, GivesTheWeightsOfTheCpu) {
  for (const Words& run : {kShort, With(kRun, {"--max-batches", "3"})}) {
    const std::string cpu = Weights(With(run, {"--backend", "cpu", "--local-workers", "0"}));
    EXPECT_EQ(cpu.size(), 64u);
    EXPECT_EQ(Weights(With(run, kOpenCl)), cpu);
  }
}

// A worker tunes its device when its first stage is made, and the bytes stay those of the CPU.
TEST_F(OpenClTraining, TuningChangesNoByteAndIsKept) {
  ScratchDir dir;
  const std::string state = dir / "state";
  const std::string cpu = Weights(With(kShort, {"--backend", "cpu", "--local-workers", "0"}));
  const auto tunings = [&] {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(state)) {
      if (entry.path().extension() == ".tuning") found.push_back(entry.path().string());
    }
    return found;
  };
  const auto tuned = [&](const std::string& seconds) {
    Process central(With({"runnel-central"},
                         With(kShort, With(kOpenCl, {"--summary", dir / "s", "--backend-option",
                                                     "opencl.tune_s=" + seconds}))),
                    [&] { setenv("RUNNEL_STATE_DIR", state.c_str(), 1); });
    EXPECT_EQ(central.Wait(), 0) << central.err();
    EXPECT_EQ(Summary(dir / "s")["weights_sha256"], cpu);
    return central.err();
  };
  tuned("1");
  ASSERT_EQ(tunings().size(), 1u);
  EXPECT_THAT(ReadWhole(tunings()[0]), HasSubstr("\"shape_class\":\"int8 product_"));
  std::ofstream(tunings()[0], std::ios::app) << "damage";
  EXPECT_THAT(tuned("0"), HasSubstr(" are ignored ("));
  const Words tune = {"runnel-worker", "--state-dir", state,       "tune", "lenet",
                      "--batch-size",  "4",           "--seconds", "1"};
  Process anew(tune);
  EXPECT_EQ(anew.Wait(), 0) << anew.err();
  EXPECT_THAT(anew.out(), AllOf(HasSubstr("int8 product_"), HasSubstr(" times as fast\n"),
                                HasSubstr("kept in ")));
  EXPECT_THAT(tuned("0"), Not(HasSubstr("ignored"))) << "in the damaged one's place";
  Process cpus(With(tune, {"--backend", "cpu"}));
  EXPECT_EQ(cpus.Wait(), 2);
  EXPECT_THAT(cpus.err(), HasSubstr("--backend cpu: has no kernels to choose from"));
}

// A device that the user names is measured beside the processor, which wins against PoCL.
TEST_F(OpenClTraining, AutoMeasuresAndSaysWhatItTakes) {
  std::string integers, floats;
  ExpectWeightsOfPlainLoops(kShort, "auto", &integers, kNamedDevice);
  Words fp32 = kShort;
  *std::find(fp32.begin(), fp32.end(), "niti") = "fp32";
  ExpectWeightsOfPlainLoops(fp32, "auto", &floats, kNamedDevice);
  EXPECT_THAT(integers,
              ContainsRegex("backend auto takes [a-z,]*: a micro-batch takes cpu .* ms.*; "
                            "opencl .* ms.*; cpu,opencl .* ms"));
  EXPECT_THAT(
      floats,
      HasSubstr("backend auto takes cpu: the bytes of fp32 are another backend's on opencl"));
}

// Central and a worker that dials in with `flags`; what central prints of `words`.
std::string Plan(const Words& words, const Words& flags) {
  Process central(With({"runnel-central", "plan", "--model", "lenet", "--recipe", "niti",
                        "--batch-size", "8", "--workers", "1"},
                       words));
  const std::string address = WorkersAddress(central);
  Process worker(With({"runnel-worker", "--once", "--central", address, "--name", "other"}, flags));
  EXPECT_EQ(central.Wait(), 0) << central.out() << central.err();
  EXPECT_EQ(worker.Wait(), 0) << worker.err();
  return central.out();
}

// One stage on cpu, one on cpu,opencl.
TEST_F(OpenClTraining, APlanSaysWhatEachStageRunsOn) {
  ScratchDir dir;
  const std::string text =
      Plan({"--policy", "uniform"}, {"--backend", "cpu,opencl", "--state-dir", dir / "state"});
  EXPECT_THAT(text, ContainsRegex("local-000: layers 0 to 2 on cpu: nothing was measured"));
  EXPECT_THAT(text, HasSubstr("other: layers 3 to 5 on cpu,opencl, as --backend says"));
  EXPECT_THAT(text, ContainsRegex("other: [0-9]+ instructions on [co].* switches, [0-9.]+ ms"));
}

// The planner measures, takes what is faster and says why; the next run goes by the same choice
// without measuring. Another limit of the device's memory is another measurement.
TEST_F(OpenClTraining, APlanSaysWhyAGpuIsLeftOut) {
  ScratchDir dir;
  // The local worker's too: measured anew in each run, it may turn out slower or faster than the
  // other, which is then measured in full instead of checked.
  setenv("RUNNEL_STATE_DIR", (dir / "local").c_str(), 1);
  const Words run = With({"--policy", "accept"}, kNamedDevice);
  const Words flags = With({"--state-dir", dir / "state"}, kNamedDevice);
  const std::string first = Plan(run, flags);
  // Not what was taken beside other work.
  const bool is_kept = std::filesystem::exists(dir / "state") &&
                       std::any_of(std::filesystem::directory_iterator(dir / "state"),
                                   std::filesystem::directory_iterator(), [](const auto& entry) {
                                     return entry.path().extension() == ".measurement";
                                   });
  const std::string second = Plan(run, flags);
  const std::string third = Plan(run, With(flags, {"--device-memory-mb", "500"}));
  setenv("RUNNEL_STATE_DIR", "", 1);
  // Without its layers: links are measured in each run.
  const auto choice = [](const std::string& text) {
    const size_t at = text.find(" on ", std::min(text.find("\nother: layers "), text.size()));
    return at == std::string::npos ? text : text.substr(at + 1, text.find('\n', at) - at - 1);
  };
  EXPECT_THAT(choice(first), ContainsRegex("on [a-z,]*: backend auto takes [a-z,]*: a micro-batch "
                                           "takes cpu .* ms.*opencl .* ms"));
  if (is_kept) {
    EXPECT_EQ(choice(second), choice(first)) << "kept with the measurement";
    EXPECT_THAT(second, Not(HasSubstr("other 0 %")));
  }
  EXPECT_NE(choice(third), choice(first)) << "measured anew";
}

// With a limit that suffices the same bytes; with less the stage is no stage for the device: the
// worker computes it on its CPU, or, where not even the check of the device runs, says so and ends.
TEST_F(OpenClTraining, ALimitOfTheDevicesMemoryChangesNoByte) {
  std::string log;
  ExpectWeightsOfPlainLoops(kShort, "opencl", &log, {"--device-memory-mb", "100"});
  EXPECT_THAT(log, Not(HasSubstr("computes on its CPU")));
}

// Central refuses a plan that the device's memory has no room for, before it begins.
TEST_F(OpenClTraining, APlanFitsTheDevicesMemory) {
  Process central({"runnel-central", "plan", "--model", "vgg11", "--recipe", "niti", "--policy",
                   "uniform", "--batch-size", "64", "--workers", "1"});
  const std::string address = WorkersAddress(central);
  Process worker({"runnel-worker", "--once", "--central", address, "--name", "other", "--backend",
                  "opencl", "--device-memory-mb", "3", "--state-dir", ""});
  EXPECT_EQ(central.Wait(), 2);
  EXPECT_THAT(central.err(),
              ContainsRegex("worker other: layers .* take .* MB, it may take 3 MB of "
                            "the memory of its opencl device: .*--device-memory-mb"));
}

// FP32: the same bytes on every run and number of stages, close to the CPU's.
TEST_F(OpenClTraining, Fp32IsAFunctionOfTheRunAndCloseToTheCpus) {
  // clang-format off
  const Words run = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--batch-size", "8",
                     "--micro-batches", "2", "--max-batches", "6", "--eval-batch-size", "50", "--schedule", "sync_1f1b"};
  // clang-format on
  ScratchDir dir;
  const auto train = [&](const Words& more) {
    Process central(With({"runnel-central"}, With(run, With(more, {"--summary", dir / "s"}))));
    EXPECT_EQ(central.Wait(), 0) << central.err();
    return Summary(dir / "s");
  };
  const auto once = train(With(kOpenCl, {}));
  const auto cut = train({"--backend", "opencl", "--local-workers", "2", "--eval-every", "-1"});
  EXPECT_EQ(once["weights_sha256"], cut["weights_sha256"]);
  const auto cpu = train({"--backend", "cpu", "--local-workers", "1"});
  EXPECT_NE(once["weights_sha256"], cpu["weights_sha256"]);
  for (const char* figure : {"train_loss", "loss"}) {
    const double loss = cpu[figure];
    EXPECT_NEAR(once[figure], loss, 1e-5 * loss) << figure;
  }
}

// What may be FP16: weights, activations.
class Fp16 : public OpenClTraining, public testing::WithParamInterface<const char*> {
 protected:
  static Words Option(const std::string& word) {
    return {"--backend-option", absl::StrCat("opencl.", GetParam(), "=", word)};
  }
};
INSTANTIATE_TEST_SUITE_P(Values, Fp16, testing::Values("weights", "activations"));

TEST_P(Fp16, LearnsAndIsSaidAndACutChangesNoByte) {
  // clang-format off
  const Words run = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits", "--batch-size", "16",
                     "--eval-batch-size", "50", "--schedule", "sync_1f1b", "--backend", "opencl"};
  // clang-format on
  const auto train = [&](const char* workers, const char* word) {
    return Weights(
        With(run, With({"--max-batches", "2", "--eval-every", "-1", "--local-workers", workers},
                       Option(word))));
  };
  const auto halves = RunCentral(With(
      run, With({"--max-batches", "16", "--lr", "0.02", "--local-workers", "1"}, Option("fp16"))));
  EXPECT_LT(halves["loss"], 2.2) << "2.3 is what ten classes begin with";
  EXPECT_GT(halves["accuracy"], 0.25);
  const std::string once = train("1", "fp16");
  EXPECT_NE(once, train("1", "fp32"));
  EXPECT_EQ(once, train("2", "fp16"));
  const Words check = {"runnel-worker", "--check", "--state-dir", ""};
  for (const bool is_fp16 : {false, true}) {
    Process worker(With(check, Option(is_fp16 ? "fp16" : "fp32")));
    EXPECT_EQ(worker.Wait(), 0);
    const auto says = ContainsRegex(absl::StrCat("opencl +yes +.*, ", GetParam(), " fp16"));
    EXPECT_EQ(testing::Matches(says)(worker.out()), is_fp16) << worker.out();
  }
}

TEST_P(Fp16, AWrongWordIsOneClearLine) {
  const std::string line = absl::StrCat(": opencl.", GetParam(), " 'bf16': there is fp32, fp16\n");
  Process worker(
      With({"runnel-worker", "--central", "127.0.0.1:1", "--backend", "opencl"}, Option("bf16")));
  EXPECT_EQ(worker.Wait(), 2);
  EXPECT_EQ(worker.err(), "runnel-worker: --backend-option" + line);
  Process central(With({"runnel-central"}, With(kShort, With(kOpenCl, Option("bf16")))));
  EXPECT_EQ(central.Wait(60), 2);
  EXPECT_EQ(central.err(),
            absl::StrCat("runnel-central: --backend-option ", Option("bf16")[1], line));
}

// What the device would not be given: another dot product, and state that is copied to be seen.
TEST_F(OpenClTraining, OtherWaysGiveTheSameWeights) {
  const std::string usual = Weights(With(kShort, kOpenCl));
  EXPECT_EQ(Weights(With(kShort, With(kOpenCl, {"--backend-option", "opencl.dot=mad24",
                                                "--backend-option", "opencl.memory=copied"}))),
            usual);
}

TEST_F(OpenClTraining, OneStageOnTheCpuAndOneOnTheDeviceGiveThePlainLoopsWeights) {
  ExpectWeightsOfPlainLoops(kShort, "opencl");
}

TEST_F(OpenClTraining, WithoutADriverOrAKnownDeviceThereIsOneClearLine) {
  const auto failure = [](
                           const Words& more, const std::function<void()>& prepare = [] {}) {
    Process central(With({"runnel-central"}, With(kShort, With(kOpenCl, more))), prepare);
    EXPECT_GT(central.Wait(60), 0);
    return central.err();
  };
  EXPECT_THAT(failure({"--backend-option", "opencl.device=no such device"}),
              HasSubstr("backend opencl: no OpenCL here: no device with opencl.device 'no such "));
  EXPECT_THAT(failure({"--backend-option", "opencl.tile=abacus"}),
              HasSubstr("opencl.tile 'abacus': device "));
  EXPECT_THAT(failure({}, [] { setenv("OCL_ICD_VENDORS", "/nowhere", 1); }),
              HasSubstr("--backend opencl: worker local-000 has cpu, small, ref"));
}

// The journal names them with the worker; a replay with others says so where the weights differ.
TEST_F(OpenClTraining, OptionsAreJournalledAndReplayComparesThem) {
  ScratchDir dir;
  const Words fp32 = {
      "train",        "--quick", "--model",       "lenet", "--dataset",    "synthetic_digits",
      "--batch-size", "8",       "--max-batches", "2",     "--eval-every", "-1"};
  Process central(
      With({"runnel-central"}, With(fp32, With(kOpenCl, {"--backend-option", "opencl.weights=fp16",
                                                         "--journal", dir / "j"}))));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  std::string journal = ReadFile(dir / "j");
  EXPECT_THAT(journal, HasSubstr(R"("backend-option":"opencl.weights=fp16")"));
  EXPECT_THAT(journal, HasSubstr(R"("backend_options":"opencl.weights=fp16")"));
  Process same({"runnel-central", "replay", "--journal", dir / "j"});
  EXPECT_EQ(same.Wait(), 0) << same.err();
  const std::string given = R"("backend-option":"opencl.weights=fp16")";
  journal.replace(journal.find(given), given.size(), R"("backend-option":"")");
  std::ofstream(dir / "other") << journal;
  Process other({"runnel-central", "replay", "--journal", dir / "other"});
  EXPECT_EQ(other.Wait(), 1) << other.out();
  EXPECT_THAT(other.err(), HasSubstr("with backend options opencl.weights=fp16, here with none"));
}

using Variables = std::vector<std::pair<std::string, std::string>>;

// With faults of tests/kernels/opencl/opencl_faults.h.
std::function<void()> Faulty(const Variables& faults) {
  return [faults] {
    setenv("LD_PRELOAD", RUNNEL_OPENCL_FAULTS, 1);
    setenv("RUNNEL_STATE_DIR", "", 1);  // else what is known of the device counts
    for (const auto& [name, value] : faults) setenv(name.c_str(), value.c_str(), 1);
  };
}

// The run goes on on the CPU, and central says why.
void ExpectTheCpuGoesOn(const Variables& faults, const std::string& why,
                        const std::string& backend = "opencl") {
  ScratchDir dir;
  const Words run = With(kRun, {"--max-batches", "12", "--barrier-every", "2"});
  const std::string cpu = Weights(With(run, {"--backend", "cpu", "--local-workers", "0"}));
  Process central(With({"runnel-central"}, With(run, {"--backend", backend, "--local-workers", "1",
                                                      "--summary", dir / "s"})),
                  Faulty(faults));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_THAT(central.err(), HasSubstr("backend opencl of worker local-000 was lost: "));
  EXPECT_THAT(central.err(), HasSubstr(why));
  EXPECT_EQ(Summary(dir / "s")["weights_sha256"], cpu);
}

TEST_F(OpenClTraining, AfterALostDeviceTheCpuGoesOn) {
  ExpectTheCpuGoesOn({{"RUNNEL_TEST_OPENCL_KERNELS", "400"}}, "is lost: kernel ");
  ExpectTheCpuGoesOn({{"RUNNEL_TEST_OPENCL_KERNELS", "200"}}, "is lost: kernel ",
                     "cpu,opencl@alternate");
}

// While it is checked, while the stage is prepared, while it trains: at the buffer for the first
// micro-batch, behind which none is made.
TEST_F(OpenClTraining, WhereADeviceHasNoMemoryTheCpuGoesOn) {
  for (const char* buffers : {"2", "20", "31"})
    ExpectTheCpuGoesOn({{"RUNNEL_TEST_OPENCL_BUFFERS", buffers}}, "ALLOCATION_FAILURE");
}

// A model in integers by two stages on the device: the plain loop's figures, also when one of them
// loses it on the way.
TEST_F(OpenClTraining, StagesOfAModelInIntegersGiveThePlainLoopsFigures) {
  ScratchDir dir;
  RunCentral({"train", "--model", "lenet", "--dataset", "synthetic_digits", "--local-workers", "0",
              "--max-batches", "20", "--eval-every", "-1", "--checkpoint-dir", dir / "trained"});
  Process quantize({"runnel-central", "quantize", "--checkpoint-dir", dir / "trained", "--out",
                    dir / "model.q8", "--samples", "20"});
  ASSERT_EQ(quantize.Wait(), 0) << quantize.err();
  const Words eval = {"eval", "--quantized", dir / "model.q8"};
  const auto plain = RunCentral(eval);
  const Words stages = With(eval, {"--local-workers", "2", "--quick", "--backend", "opencl"});
  const auto whole = RunCentral(stages);
  Process central(With({"runnel-central"}, With(stages, {"--summary", dir / "s"})),
                  Faulty({{"RUNNEL_TEST_OPENCL_KERNELS", "100"}}));
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_THAT(central.err(), ContainsRegex("backend opencl of worker local-00[01] was lost: "));
  const auto lost = Summary(dir / "s");
  for (const char* figure : {"accuracy", "loss"}) {
    EXPECT_EQ(whole[figure], plain[figure]) << figure;
    EXPECT_EQ(lost[figure], plain[figure]) << figure;
  }
}

// Kernels that do nothing stand for a driver that gets them wrong.
TEST_F(OpenClTraining, ADeviceThatComputesWrongIsRefused) {
  ScratchDir dir;
  const Variables wrong = {{"RUNNEL_TEST_OPENCL_NOTHING", "1"}};
  const auto refusal = AllOf(HasSubstr("backend opencl: "), HasSubstr("computes integers wrong: "),
                             HasSubstr("`runnel-worker --check`"));
  const Words worker = {"runnel-worker", "--central",   "127.0.0.1:1", "--connect-timeout-ms",
                        "100",           "--state-dir", dir.path()};
  Process named(With(worker, {"--backend", "opencl"}), Faulty(wrong));
  EXPECT_EQ(named.Wait(), 2);
  EXPECT_THAT(named.err(), refusal);
  Process other(worker, Faulty(wrong));
  EXPECT_EQ(other.Wait(), 1) << "no central is there";
  EXPECT_THAT(other.err(), AllOf(HasSubstr("not offered: "), refusal)) << "it was found before";
  Process central(With({"runnel-central"}, With(kShort, kOpenCl)), Faulty(wrong));
  EXPECT_EQ(central.Wait(), 2);
  EXPECT_THAT(central.err(), refusal);
  Process list(
      {"runnel-worker", "--state-dir", "", "program", "lenet", "--processors", "cpu,opencl"},
      Faulty(wrong));
  EXPECT_EQ(list.Wait(), 2);
  EXPECT_THAT(list.err(), refusal);
  Process plan({"runnel-central", "plan", "--model", "lenet", "--recipe", "niti", "--local-workers",
                "2", "--backend", "cpu,opencl", "--program"},
               Faulty(wrong));
  EXPECT_EQ(plan.Wait(), 2);
  EXPECT_THAT(plan.err(), refusal);
  Process check({"runnel-worker", "--check", "--state-dir", dir.path()}, Faulty(wrong));
  EXPECT_EQ(check.Wait(), 0);
  EXPECT_THAT(check.out(), ContainsRegex("opencl +no +.*computes integers wrong: "));
  Process right({"runnel-worker", "--check", "--state-dir", dir.path()});
  EXPECT_EQ(right.Wait(), 0);
  EXPECT_THAT(right.out(), ContainsRegex("opencl +yes +.*driver .*compute unit.*MiB.*dot product "
                                         ".*integers as ref computes them"));
}

}  // namespace
}  // namespace runnel::opencl_test
