// `learn` by the real binaries: the same weights on any number of stages and over a kill, each new
// image once through the front, and a session without new classes is ordinary training of the tail.

#include <signal.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/process/central_runs.h"

namespace runnel::learn_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// clang-format off
const Words kTrain = {"train", "--quick", "--model", "har_cnn", "--dataset", "synthetic_har",
                      "--local-workers", "0", "--batch-size", "32"};
// clang-format on

// A model that knows classes 0 to 3 of 6.
class Learn : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = new ScratchDir();
    RunCentral(With(
        kTrain, {"--classes", "0-3", "--max-batches", "200", "--checkpoint-dir", *dir_ / "from"}));
  }
  static void TearDownTestSuite() { delete dir_; }

  Words Session(const std::string& to, const Words& more) const {
    return With({"learn", "--quick", "--from", *dir_ / "from", "--at", "3", "--samples", "30",
                 "--replay", "150", "--batch-size", "32", "--checkpoint-dir", *dir_ / to},
                more);
  }
  static ScratchDir* dir_;
};
ScratchDir* Learn::dir_ = nullptr;

TEST_F(Learn, AnyNumberOfStagesGivesTheWeightsOfThePlainLoop) {
  const Words one = {"--classes", "4", "--epochs", "3", "--micro-batches", "2"};
  const json plain = RunCentral(Session("plain", With(one, {"--local-workers", "0"})));
  const json two = RunCentral(Session("two", With(one, {"--local-workers", "2"})));
  EXPECT_EQ(two["weights_sha256"], plain["weights_sha256"]);
  ASSERT_EQ(plain["sessions"].size(), 1u);
  const json& session = plain["sessions"][0];
  EXPECT_EQ(session["front_samples"], 30);
  EXPECT_EQ(session["filled_samples"], 150 / 4 * 4);
  EXPECT_EQ(session["replayed"], 148);
  EXPECT_EQ(session["tail_samples"], 3 * 178);
  EXPECT_EQ(session["latent_bytes"], 150 * session["bytes_each"].get<int64_t>());
  EXPECT_GT(session["new_accuracy"], 0.5);
  EXPECT_GT(session["accuracy"], 0.65);
  // What eval says of the folder is what the session found.
  Process eval({"runnel-central", "eval", "--checkpoint-dir", *dir_ / "plain", "--summary",
                *dir_ / "eval.json"});
  EXPECT_EQ(eval.Wait(), 0) << eval.err();
  EXPECT_DOUBLE_EQ(Summary(*dir_ / "eval.json")["accuracy"], plain["accuracy"].get<double>());
  EXPECT_EQ(Summary(*dir_ / "eval.json")["weights_sha256"], plain["weights_sha256"]);
  // The memory is there for the next class.
  const json next = RunCentral({"learn", "--quick", "--from", *dir_ / "plain", "--at", "3",
                                "--samples", "30", "--replay", "150", "--classes", "5", "--epochs",
                                "1", "--checkpoint-dir", *dir_ / "next"});
  EXPECT_EQ(next["sessions"][0]["session"], 2);
  EXPECT_EQ(next["sessions"][0]["filled_samples"], 0);
  EXPECT_EQ(next["sessions"][0]["replayed"], 150);
  ExpectRefused({"learn", "--from", *dir_ / "plain", "--at", "2", "--classes", "5"},
                "its memory has latents of type int8 before layer 3; give --at 3 --latents int8");
}

TEST_F(Learn, ACallThatWasKilledGoesOnWithTheSameWeights) {
  const Words two = {"--classes",       "4-5", "--sessions",      "2", "--epochs",  "4",
                     "--barrier-every", "5",   "--local-workers", "2", "--latents", "fp16"};
  const std::string whole = Weights(Session("whole", two));
  const Words again = Session("killed", two);
  for (const std::string& file :
       {std::string("session-1/run.journal"), std::string("session-2/run.journal")}) {
    Process central(With({"runnel-central"}, again));
    ASSERT_TRUE(WaitForRecords(*dir_ / ("killed/" + file), "checkpoint", 1)) << file;
    central.Signal(SIGKILL);
    EXPECT_EQ(central.Wait(), -SIGKILL);
  }
  EXPECT_EQ(Weights(again), whole);
  EXPECT_EQ(Weights(again), whole);  // all is done
  ExpectRefused(Session("killed", With(two, {"--seed", "5"})), "holds sessions with other flags");
}

// No dropout, whose draws go by the layer's number; batch norm on both sides of the cut. The front has
// a convolution of a shape for which evaluation has other sums than training.
constexpr char kSmall[] = R"({"format": "runnel-model", "version": 1, "name": "small",
  "input": [1, 28, 28], "classes": 10, "layers": [
    {"name": "front", "ops": [{"op": "conv", "out": 32, "kernel": 5, "stride": 2},
                              {"op": "batch_norm"}, {"op": "relu"},
                              {"op": "conv", "out": 32, "kernel": 3, "padding": 1},
                              {"op": "batch_norm"}, {"op": "relu"},
                              {"op": "conv", "out": 4, "kernel": 1},
                              {"op": "batch_norm"}, {"op": "relu"}]},
    {"name": "middle", "ops": [{"op": "conv", "out": 8, "kernel": 3, "stride": 2},
                               {"op": "batch_norm"}, {"op": "relu"}]},
    {"name": "end", "ops": [{"op": "flatten"}, {"op": "linear", "out": 10, "bias": true}]}]})";

TEST_F(Learn, WithoutNewClassesItIsTrainingOfTheTailBitForBit) {
  const std::string model = *dir_ / "small.json";
  std::ofstream(model) << kSmall;
  // clang-format off
  const Words train = {"train", "--quick", "--model", "json:" + model, "--dataset",
                       "synthetic_digits", "--local-workers", "0"};
  const Words hyper = {"--epochs", "1", "--batch-size", "64", "--lr", "0.02", "--momentum", "0.9",
                       "--weight-decay", "0.0005"};
  // clang-format on
  RunCentral(With(train, {"--max-batches", "20", "--checkpoint-dir", *dir_ / "all"}));
  const std::string learned = Weights(With(
      {"learn", "--quick", "--from", *dir_ / "all", "--at", "middle", "--samples", "0", "--replay",
       "60000", "--latents", "fp32", "--local-workers", "0", "--checkpoint-dir", *dir_ / "tail"},
      hyper));
  const std::string trained =
      Weights(With(With(train, {"--rewrite", "freeze:1", "--init-from", *dir_ / "all", "--schedule",
                                "sync_1f1b", "--micro-batches", "1", "--rate", "constant"}),
                   hyper));
  EXPECT_EQ(learned, trained);
}

TEST_F(Learn, BadInputIsOneLine) {
  const std::string from = *dir_ / "from";
  const auto refused = [&](const Words& more, const std::string& message) {
    ExpectRefused(With({"learn", "--from", from}, more), message);
  };
  refused({"--at", "0", "--classes", "5"},
          "--at 0: model har_cnn cannot be cut there; give a layer from 1 to ");
  refused({"--at", "3", "--classes", "7"},
          "--classes 7: there is no class 7, they are 0 to 5, the outputs of har_cnn; for more");
  refused({"--at", "3", "--classes", "3"}, "class 3 is not new to --from");
  refused({"--at", "3", "--classes", "4-5", "--samples", "100000"},
          "--samples 100000: class 4 has ");
  refused({"--at", "3", "--classes", "5", "--replay", "900", "--memory-mb", "1"},
          "bytes of latents, the limit is 1048576; give at most ");
  refused({"--at", "3", "--classes", "5", "--replay", "4"},
          "is less than one of each of 5 classes");
  refused({"--at", "3", "--classes", "4-5", "--sessions", "3"}, "do not share the 2 classes");
  refused({"--at", "3", "--classes", "5", "--latents", "int4"},
          "--latents: there is no type 'int4'");
  refused({"--at", "3"}, "--classes: give those that are new");
  refused({}, "--at: give the layer from which on the model trains");
  ExpectRefused({"learn", "--from", *dir_ / "nowhere", "--at", "3", "--classes", "5"}, "--from ");
  Process check({"runnel-central", "check", "har_cnn"});
  EXPECT_EQ(check.Wait(), 0);
  EXPECT_THAT(check.out(), HasSubstr("params behind"));
  EXPECT_THAT(check.out(), HasSubstr("recipes that can train it: fp32"));
  EXPECT_THAT(check.out(),
              HasSubstr("not by recipe niti: model har_cnn, layer conv1, op 0 (conv)"));
  // A step's activations and errors on the link: FP32 of 64 samples, each way with a frame's header.
  Process two({"runnel-central", "check", "har_cnn", "--devices", "2"});
  EXPECT_EQ(two.Wait(), 0);
  EXPECT_THAT(two.out(), HasSubstr("\n1: 0-4 "));
  EXPECT_THAT(two.out(), HasSubstr("; links "));
  EXPECT_THAT(two.out(), ::testing::Not(HasSubstr("\n3: ")));
  ExpectRefused({"check", "har_cnn", "--recipe", "niti"}, "--recipe niti: model har_cnn");
  ExpectRefused({"check", "har_cnn", "--devices", "0"}, "--devices");
}

}  // namespace
}  // namespace runnel::learn_test
