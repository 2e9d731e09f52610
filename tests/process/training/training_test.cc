// Whole runs by the real binaries: equal weights over stages, check-points, kills, signals, replay,
// the summary.

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/process/central_runs.h"
#include "tests/process/process.h"

namespace runnel::training_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

struct Case {
  std::string model;
  Words flags;
  bool needs_images = false;
};

class SyncEqualsPlainLoop : public ::testing::TestWithParam<Case> {};

TEST_P(SyncEqualsPlainLoop, OnOneToFourStages) {
  ScratchDir dir;
  Words common = With({"train", "--model", GetParam().model, "--schedule", "sync_1f1b",
                       "--micro-batches", "4", "--eval-every", "0", "--barrier-every", "3"},
                      GetParam().flags);
  if (GetParam().needs_images) {
    WriteImages(dir / "data_batch_1.bin", 200);
    WriteImages(dir / "test_batch.bin", 20);
    common = With(common, {"--dataset", "cifar10", "--data-dir", dir.path()});
  }
  const std::string plain = Weights(With(common, {"--local-workers", "0"}));
  EXPECT_EQ(plain.size(), 64u);
  for (const char* workers : {"1", "2", "4"}) {
    EXPECT_EQ(Weights(With(common, {"--local-workers", workers})), plain) << workers << " stages";
  }
}

// LeNet is plain, the HAR CNN has dropout, MobileNetV2 batch norm and residual blocks.
INSTANTIATE_TEST_SUITE_P(
    Models, SyncEqualsPlainLoop,
    ::testing::Values(
        Case{"lenet", {"--max-batches", "8"}},
        Case{"har_cnn", {"--max-batches", "8", "--augment", "shift,mixup", "--swa", "3@2"}},
        Case{"mobilenet_v2", {"--batch-size", "32", "--max-batches", "5", "--lr", "0.01"}, true}),
    [](const auto& info) { return info.param.model; });

TEST(Training, AugmentationIsOnForImagesAndIsKeptByTheJournal) {
  ScratchDir dir;
  WriteImages(dir / "data_batch_1.bin", 40);
  WriteImages(dir / "test_batch.bin", 20);
  const Words common = {"train",     "--model",       "vgg_small_7", "--dataset",
                        "cifar10",   "--data-dir",    dir.path(),    "--schedule",
                        "sync_1f1b", "--batch-size",  "8",           "--epochs",
                        "2",         "--max-batches", "6",           "--eval-every",
                        "-1",        "--lr",          "0.01"};
  const std::string journal = dir / "run.journal";
  const std::string on = Weights(With(common, {"--local-workers", "3", "--journal", journal}));
  EXPECT_EQ(Weights(With(common, {"--local-workers", "0", "--augment", "flip,crop"})), on);
  EXPECT_NE(Weights(With(common, {"--local-workers", "0", "--augment", "off"})), on);
  EXPECT_NE(Weights(With(common, {"--local-workers", "0", "--augment", "flip"})), on);
  EXPECT_EQ(Weights({"replay", "--journal", journal}), on);
}

TEST(Training, AsyncLearnsAndTellsWhatItDid) {
  const json summary = RunCentral({"train", "--local-workers", "3", "--epochs", "2",
                                   "--codec-forward", "mbq:4", "--codec-backward", "stochastic:8"});
  EXPECT_GT(summary.value("accuracy", 0.0), 0.8);
  for (const char* key : {"loss", "samples_per_s", "wall_s"})
    EXPECT_GT(summary.value(key, 0.0), 0.0) << key;
  ASSERT_EQ(summary["plan"]["stages"].size(), 3u);
  ASSERT_EQ(summary["links"].size(), 2u);
  ASSERT_EQ(summary["stages"].size(), 3u);
  for (const json& stage : summary["plan"]["stages"]) {
    for (const char* key : {"first_layer", "last_layer", "cap", "device_number"})
      EXPECT_TRUE(stage.contains(key)) << key;
    EXPECT_THAT(stage.value("device", ""), HasSubstr("local-00"));
  }
  for (const json& link : summary["links"]) {
    EXPECT_EQ(link["codec_forward"], "mbq:4");
    EXPECT_EQ(link["codec_backward"], "stochastic:8");
    EXPECT_GT(link["raw_bytes_forward"].get<double>() / link["bytes_forward"].get<double>(), 7.0);
    EXPECT_GT(link["raw_bytes_backward"].get<double>() / link["bytes_backward"].get<double>(), 3.5);
    EXPECT_GT(link["frames"].get<int64_t>(), 0);
  }
  for (const json& stage : summary["stages"]) {
    EXPECT_GT(stage["busy_share"].get<double>(), 0.0);
    EXPECT_GE(stage["wait_share"].get<double>(), 0.0);
    EXPECT_GT(stage["busy_processor_share"].get<double>(), 0.0);
    EXPECT_GT(stage["processor_share"].get<double>(), stage["busy_processor_share"].get<double>());
    EXPECT_GT(stage["joules_per_sample"].get<double>(), 0.0);
    EXPECT_THAT(stage.value("energy", ""), ::testing::AnyOf("model", "rapl", "hwmon", "battery"));
    EXPECT_GT(stage["peak_rss_bytes"].get<int64_t>(), int64_t{1} << 20);
    EXPECT_GT(stage["memory_bytes"].get<int64_t>(), int64_t{1} << 16);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(stage["peak_rss_bytes"].get<int64_t>(),
              stage["memory_bytes"].get<int64_t>() + (int64_t{60} << 20));
#endif
  }
}

const Words kAsync = {
    "train",           "--quick", "--model",          "lenet",        "--local-workers", "3",
    "--codec-forward", "mbq:2",   "--codec-backward", "stochastic:8", "--barrier-every", "10"};

// Beside the training a worker of its own evaluates; the figures are those of the plain loop, which
// has trained the same weights.
TEST(Training, EvaluationsBesideTheTrainingGiveTheSameFigures) {
  const Words words = {"train",
                       "--model",
                       "lenet",
                       "--dataset",
                       "synthetic_digits",
                       "--schedule",
                       "sync_1f1b",
                       "--epochs",
                       "2",
                       "--batch-size",
                       "400",
                       "--eval-batch-size",
                       "200",
                       "--max-batches",
                       "7"};
  const nlohmann::json plain = RunCentral(With(words, {"--local-workers", "0"}));
  const nlohmann::json beside = RunCentral(With(words, {"--local-workers", "3"}));
  EXPECT_EQ(beside["weights_sha256"], plain["weights_sha256"]);
  ASSERT_FALSE(plain["evaluations"].empty());
  EXPECT_EQ(beside["evaluations"], plain["evaluations"]);
}

TEST(Training, StopAndResumeEqualsNotStopping) {
  ScratchDir dir;
  const std::string whole = Weights(With(kAsync, {"--max-batches", "40"}));
  // Stops between barriers: the check-point is that of step 20.
  RunCentral(
      With(kAsync, {"--max-batches", "25", "--checkpoint-dir", dir / "c", "--journal", dir / "j"}));
  // The run has waited for its last one.
  const std::string journal = ReadFile(dir / "j");
  EXPECT_LT(journal.find("final.runnel"), journal.find("\"record\":\"finished\""));
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "40"}), whole);
}

TEST(Training, ASynchronousRunResumesOnAnotherNumberOfStages) {
  ScratchDir dir;
  const Words sync = {"train",     "--model",         "har_cnn", "--schedule",
                      "sync_1f1b", "--barrier-every", "5"};
  const std::string whole = Weights(With(sync, {"--local-workers", "2", "--max-batches", "12"}));
  RunCentral(
      With(sync, {"--local-workers", "3", "--max-batches", "5", "--checkpoint-dir", dir / "c"}));
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "12",
                     "--local-workers", "1"}),
            whole);
}

TEST(Training, ReplayComesToTheSameWeights) {
  ScratchDir dir;
  RunCentral(With(kAsync, {"--max-batches", "25", "--journal", dir / "j"}));
  ExpectReplays(dir / "j");
  // A journal that tells of other weights is noticed.
  std::string text = ReadFile(dir / "j");
  const size_t at = text.rfind("\"weights_sha256\":\"") + 18;
  text[at] = text[at] == '0' ? '1' : '0';
  std::ofstream(dir / "wrong") << text;
  Process wrong({"runnel-central", "replay", "--journal", dir / "wrong"});
  EXPECT_EQ(wrong.Wait(), 1);
}

// Barriers drain the pipeline, so that the weights tell where they were.
TEST(Training, BarriersByLossesAreJournalledAndReplayed) {
  ScratchDir dir;
  const Words run = {"train", "--local-workers", "2",          "--batch-size",
                     "8",     "--max-batches",   "450",        "--eval-every",
                     "-1",    "--schedule",      "async_1f1b", "--barrier-every",
                     "auto",  "--journal",       dir / "j"};
  const std::string weights = Weights(run);
  EXPECT_EQ(Weights({"replay", "--journal", dir / "j"}), weights);
  ExpectRefused(
      {"train", "--recipe", "sbm:8,8,8", "--precision", "pfq:3,4/6,6", "--barrier-every", "auto"},
      "give that a number");
  ExpectRefused({"train", "--barrier-every", "0"}, "must be at least 1, or auto");
  ExpectRefused({"train", "--barrier-every", "often"}, "must be an integer, or auto");
}

// Bits change at the epochs 1 and 2, of six steps each; the check-point is that of step 10.
TEST(Training, BitsByEpochSurviveStopResumeAndReplay) {
  ScratchDir dir;
  const Words scheduled = {"train",
                           "--model",
                           "har_cnn",
                           "--dataset",
                           "synthetic_har",
                           "--local-workers",
                           "2",
                           "--batch-size",
                           "400",
                           "--epochs",
                           "3",
                           "--barrier-every",
                           "5",
                           "--bits",
                           "2,1:3,2:4/8,2:4"};
  const json whole = RunCentral(With(scheduled, {"--journal", dir / "j"}));
  for (const json& link : whole["links"]) {
    EXPECT_EQ(link["codec_forward"], "0:mbq:2,1:mbq:3,2:mbq:4");
    EXPECT_EQ(link["codec_backward"], "0:stochastic:8,2:stochastic:4");
  }
  RunCentral(With(scheduled, {"--max-batches", "11", "--checkpoint-dir", dir / "c"}));
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "18"}),
            whole["weights_sha256"]);
  Replay(dir / "j");
}

// What both ends of a link keep of each sample is in check-points, and the journal replays to it: steps
// 11 to 18 are the end of the second epoch and the third one.
TEST(Training, KeptSamplesSurviveStopResumeAndReplay) {
  ScratchDir dir;
  const Words run = {"train",
                     "--model",
                     "har_cnn",
                     "--dataset",
                     "synthetic_har",
                     "--augment",
                     "off",
                     "--local-workers",
                     "3",
                     "--policy",
                     "uniform",
                     "--batch-size",
                     "400",
                     "--epochs",
                     "3",
                     "--barrier-every",
                     "5",
                     "--codec-forward",
                     "0:aqsgd:2,2:aqsgd:3",
                     "--codec-backward",
                     "eden:4"};
  const json whole = RunCentral(With(run, {"--journal", dir / "j"}));
  ASSERT_EQ(whole["steps"], 18);
  RunCentral(With(run, {"--max-batches", "11", "--checkpoint-dir", dir / "c"}));
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "18"}),
            whole["weights_sha256"]);
  EXPECT_EQ(Weights({"replay", "--journal", dir / "j"}), whole["weights_sha256"]);
}

// With codecs too the values cross in the order of sync_1f1b, so the weights are the same.
TEST(Training, ZbH1WithCodecsEqualsSync1F1BResumesAndReplays) {
  ScratchDir dir;
  const Words run = {"train",
                     "--model",
                     "lenet",
                     "--local-workers",
                     "3",
                     "--micro-batches",
                     "4",
                     "--codec-forward",
                     "mbq:2",
                     "--codec-backward",
                     "stochastic:8",
                     "--barrier-every",
                     "5",
                     "--eval-every",
                     "0"};
  const Words zb_h1 = With(run, {"--schedule", "zb_h1"});
  const json whole = RunCentral(With(zb_h1, {"--max-batches", "15", "--journal", dir / "j"}));
  EXPECT_EQ(whole["plan"]["stages"][2].value("deferred_weight_gradients", 0), 2);
  EXPECT_EQ(whole["weights_sha256"],
            Weights(With(run, {"--schedule", "sync_1f1b", "--max-batches", "15"})));
  RunCentral(With(zb_h1, {"--max-batches", "12", "--checkpoint-dir", dir / "c"}));
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "15"}),
            whole["weights_sha256"]);
  EXPECT_EQ(Weights({"replay", "--journal", dir / "j"}), whole["weights_sha256"]);
}

// Rows with a loss, over all lives of the run: no step is missing at the end or there twice.
void ExpectStepsAscend(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line.rfind("step,epoch,seconds,loss", 0), 0u) << line;
  int64_t last = 0;
  while (std::getline(file, line)) {
    int64_t step = 0, epoch = 0;
    double seconds = 0, loss = 0;
    if (std::sscanf(line.c_str(), "%ld,%ld,%lf,%lf", &step, &epoch, &seconds, &loss) != 4) continue;
    EXPECT_GT(step, last) << line;
    EXPECT_GT(loss, 0) << line;
    EXPECT_EQ(epoch, 1 + (step - 1) / 94) << "of three, as on the screen: " << line;
    last = step;
  }
  EXPECT_EQ(last, 282);
}

TEST(Training, CtrlCEndsAtABarrierWithACheckpoint) {
  ScratchDir dir;
  const std::string whole = Weights(kAsync);
  Process central(With({"runnel-central"}, With(kAsync, {"--checkpoint-dir", dir / "c", "--journal",
                                                         dir / "j", "--log", dir / "l.csv"})));
  ASSERT_TRUE(WaitForText(dir / "j", "\"barrier\"")) << central.err();
  central.Signal(SIGINT);
  EXPECT_EQ(central.Wait(), 130) << central.err();
  EXPECT_THAT(central.out(), HasSubstr("go on with: runnel-central resume"));
  EXPECT_THAT(central.err(), HasSubstr("stopped by the user after"));
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c"}), whole);
  ExpectStepsAscend(dir / "l.csv");
}

// What becomes of a killed worker: recovering_test.cc.
TEST(Training, TheCheckpointOfAKilledCentralGoesOn) {
  ScratchDir dir;
  const std::string whole = Weights(With(kAsync, {"--max-batches", "200"}));
  Process central(With({"runnel-central"}, With(kAsync, {"--max-batches", "200", "--checkpoint-dir",
                                                         dir / "c", "--journal", dir / "j"})));
  // After a check-point, so that there is something to go on from.
  ASSERT_TRUE(WaitForText(dir / "j", "\"checkpoint\"")) << central.err();
  central.Signal(SIGKILL);
  EXPECT_EQ(central.Wait(30), -SIGKILL);
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir / "c", "--max-batches", "200"}), whole);
}

// The newest check-point is cut short, as after a power cut: the one before goes on.
TEST(Training, ADamagedCheckpointDoesNotHideTheOneBefore) {
  ScratchDir dir;
  const std::string whole = Weights(With(kAsync, {"--max-batches", "30"}));
  RunCentral(With(kAsync, {"--max-batches", "20", "--checkpoint-dir", dir / "c"}));
  std::filesystem::resize_file(dir / "c/checkpoint-000000000020.runnel", 1000);
  Process resume({"runnel-central", "resume", "--checkpoint-dir", dir / "c", "--max-batches", "30",
                  "--summary", dir / "s.json"});
  EXPECT_EQ(resume.Wait(), 0) << resume.err();
  EXPECT_THAT(resume.out(), HasSubstr("resuming lenet at step 10"));
  EXPECT_THAT(resume.out() + resume.err(), HasSubstr("000020.runnel is truncated"));
  EXPECT_EQ(Summary(dir / "s.json")["weights_sha256"], whole);
}

// A run that was never evaluated while it trained is evaluated when somebody asks for it.
TEST(Training, EvalNeedsNoEvaluationWhileTraining) {
  ScratchDir dir;
  RunCentral(
      With(kAsync, {"--max-batches", "10", "--eval-every", "-1", "--checkpoint-dir", dir / "c"}));
  const json evaluated = RunCentral({"eval", "--checkpoint-dir", dir / "c"});
  EXPECT_GT(evaluated.value("accuracy", -1.0), 0.0);
}

TEST(Training, EvalReadsTheNewestWeights) {
  ScratchDir dir;
  const json trained =
      RunCentral(With(kAsync, {"--max-batches", "25", "--checkpoint-dir", dir / "c"}));
  const json evaluated = RunCentral({"eval", "--checkpoint-dir", dir / "c"});
  EXPECT_EQ(evaluated["accuracy"], trained["accuracy"]);
}

TEST(Training, TheBestCheckpointIsKeptBesideTheNewest) {
  ScratchDir dir;
  const json trained = RunCentral(With(
      kAsync, {"--max-batches", "60", "--eval-every", "-1", "--checkpoint-dir", dir / "none"}));
  EXPECT_EQ(ReadFile(dir / "none/best.json"), "") << "nothing was evaluated";
  const json run =
      RunCentral({"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits",
                  "--local-workers", "0", "--batch-size", "64", "--epochs", "3",
                  "--eval-batch-size", "250", "--checkpoint-dir", dir / "c"});
  const json best = Summary(dir / "c/best.json");
  double highest = 0;
  for (const json& one : run["evaluations"])
    highest = std::max(highest, one["accuracy"].get<double>());
  EXPECT_EQ(best["accuracy"], highest);
  const json evaluated = RunCentral({"eval", "--checkpoint-dir", dir / "c/best.runnel"});
  EXPECT_EQ(evaluated["accuracy"], best["accuracy"]);
}

// What a plain HTTP GET on loopback gives; empty if nobody answers.
std::string Get(int port, const std::string& path) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  std::string reply;
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size())) {
    char buffer[4096];
    for (ssize_t n = 0; (n = read(fd, buffer, sizeof(buffer))) > 0;)
      reply.append(buffer, static_cast<size_t>(n));
  }
  close(fd);
  return reply;
}

TEST(Training, ServesMetricsAndHealthWhileItRuns) {
  ScratchDir dir;
  Process central(With({"runnel-central"}, With(kAsync, {"--epochs", "50", "--metrics-port", "0",
                                                         "--journal", dir / "j"})));
  ASSERT_TRUE(WaitForText(dir / "j", "\"barrier\"")) << central.err();
  const std::string marker = "http://127.0.0.1:";
  const std::string text = central.out();
  const size_t at = text.find(marker);
  ASSERT_NE(at, std::string::npos) << text;
  const int port = std::stoi(text.substr(at + marker.size()));
  EXPECT_THAT(Get(port, "/healthz"), HasSubstr("200 OK"));
  // All figures are there after the first telemetry of each stage.
  const Words names = {"runnel_step",
                       "runnel_samples_per_second",
                       "runnel_samples_total",
                       "runnel_train_loss",
                       "runnel_stage_busy_ratio{stage=\"2\"",
                       "runnel_stage_joules_per_sample{stage=",
                       "runnel_link_bytes_total{link=\"0\",direction=\"forward\""};
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  std::string metrics;
  const auto missing = [&metrics](const std::string& name) {
    return metrics.find(name) == std::string::npos;
  };
  do {
    metrics = Get(port, "/metrics");
  } while (std::any_of(names.begin(), names.end(), missing) &&
           std::chrono::steady_clock::now() < deadline);
  for (const std::string& name : names) EXPECT_THAT(metrics, HasSubstr(name));
  EXPECT_THAT(Get(port, "/readyz"), HasSubstr("200 OK"));
  EXPECT_THAT(Get(port, "/state"), HasSubstr("\"stages\""));
  // Twice: at once.
  central.Signal(SIGINT);
  central.Signal(SIGINT);
  const int code = central.Wait(30);
  EXPECT_TRUE(code == 130 || code == 0) << code;
}

TEST(Training, DialledWorkersTakePart) {
  const Words common = {"train", "--quick", "--model", "lenet", "--max-batches", "12"};
  const std::string local = Weights(With(common, {"--local-workers", "3"}));
  ScratchDir dir;
  Process central(
      With({"runnel-central"}, With(common, {"--workers", "2", "--summary", dir / "s"})));
  const std::string address = WorkersAddress(central);
  Process one({"runnel-worker", "--once", "--central", address, "--name", "one"});
  Process two({"runnel-worker", "--once", "--central", address, "--name", "two"});
  EXPECT_EQ(central.Wait(), 0) << central.err();
  EXPECT_EQ(one.Wait(), 0) << one.err();
  EXPECT_EQ(two.Wait(), 0) << two.err();
  EXPECT_EQ(Summary(dir / "s")["weights_sha256"], local);
}

}  // namespace
}  // namespace runnel::training_test
