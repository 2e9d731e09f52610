// --rewrite lora:RANK and head:CLASSES by the real binaries: the same weights on one and on three
// stages, over check-points and again from the journal; merged weights compute the same; classes
// that come later. What does not fit is one line.

#include <fstream>

#include "absl/strings/str_cat.h"
#include "central/records/checkpoint.h"
#include "gmock/gmock.h"
#include "tests/process/central_runs.h"

namespace runnel::adapters_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

// clang-format off
const Words kLenet = {"train", "--quick", "--model", "lenet", "--dataset", "synthetic_digits",
                      "--batch-size", "32", "--barrier-every", "10", "--schedule", "sync_1f1b",
                      "--micro-batches", "4", "--epochs", "1", "--eval-every", "0"};
// clang-format on
const Words kStill = {"--max-batches", "1", "--lr", "1e-12", "--warm-up-steps", "0"};

class Adapters : public testing::Test {
 protected:
  // Trained on the classes 0 to 4.
  json TrainBase() {
    return RunCentral(
        With(kLenet, {"--classes", "0-4", "--recipe", "fp32", "--checkpoint-dir", dir_ / "base"}));
  }
  Words From(const std::string& folder, const Words& more) {
    return With(With(kLenet, {"--init-from", dir_ / folder}), more);
  }
  std::string Export(const std::string& folder, const std::string& file) {
    Process out(
        {"runnel-central", "export", "--checkpoint-dir", dir_ / folder, "--onnx", dir_ / file});
    EXPECT_EQ(out.Wait(), 0) << out.err();
    return dir_ / file;
  }

  ScratchDir dir_;
};

TEST_F(Adapters, PairsTrainTheSameOnOneAndThreeStagesAndAreMerged) {
  TrainBase();
  const Words run = From("base", {"--classes", "3-7", "--rewrite", "lora:4", "--lr", "0.003"});
  Process told(With(With({"runnel-central"}, run),
                    {"--local-workers", "3", "--checkpoint-dir", dir_ / "pairs", "--journal",
                     dir_ / "j", "--summary", dir_ / "s"}));
  ASSERT_EQ(told.Wait(), 0) << told.err();
  // The pairs alone are new.
  EXPECT_THAT(told.err(), HasSubstr("4 are drawn: fc1."));
  EXPECT_THAT(told.err(), Not(HasSubstr(".weight (10x500)")));
  const json cut = Summary(dir_ / "s");
  const json whole = RunCentral(With(run, {"--local-workers", "0"}));
  EXPECT_EQ(cut["weights_sha256"], whole["weights_sha256"]);
  EXPECT_GT(whole["accuracy"], 0.6) << "two of the five classes are known";
  Replay(dir_ / "j");

  // What was there stays, to the bit.
  const auto base = ReadLatestCheckpoint(dir_ / "base"),
             pairs = ReadLatestCheckpoint(dir_ / "pairs");
  ASSERT_TRUE(base.ok() && pairs.ok());
  for (size_t layer = 0; layer < base->checkpoint.state.layers.size(); ++layer) {
    for (const TensorData& tensor : base->checkpoint.state.layers[layer].tensors)
      EXPECT_THAT(pairs->checkpoint.state.layers[layer].tensors, testing::Contains(tensor));
  }
  // Into the model without pairs, as a check-point and as ONNX.
  const std::string onnx = Export("pairs", "merged.onnx");
  Words as_onnx = kLenet;
  as_onnx[3] = "onnx:" + onnx;
  for (const Words& run_of : {From("pairs", {}), as_onnx}) {
    const json merged = RunCentral(With(With(run_of, {"--classes", "3-7"}), kStill));
    EXPECT_NEAR(merged["accuracy"].get<double>(), whole["accuracy"].get<double>(), 0.0021)
        << run_of[3];
  }
}

TEST_F(Adapters, AnotherHeadBeginsAnewAndTheRestIsKept) {
  std::ofstream table(dir_ / "four.csv");
  table << "a,b,c,y\n";
  for (int i = 0; i < 64; ++i)
    table << i % 4 << ',' << i % 7 << ',' << (i * 5) % 3 << ",k" << i % 4 << '\n';
  table.close();
  const Words run = {"train",        "--quick",
                     "--model",      "mlp",
                     "--data",       absl::StrCat("csv:", dir_ / "four.csv"),
                     "--batch-size", "8",
                     "--epochs",     "1"};
  RunCentral(With(run, {"--checkpoint-dir", dir_ / "mlp"}));
  ExpectRefused(With(run, {"--rewrite", "head:9"}), "has 4 classes, model mlp 9");
  Process told(With(With({"runnel-central"}, run),
                    {"--rewrite", "lora:2", "--rewrite", "head:4", "--init-from", dir_ / "mlp"}));
  EXPECT_EQ(told.Wait(), 0) << told.err();
  EXPECT_THAT(told.err(), HasSubstr("4 are drawn: fc1."));
}

TEST_F(Adapters, ClassesAreAFilter) {
  const json few = TrainBase();
  EXPECT_GT(few["accuracy"], 0.9);
  EXPECT_EQ(few["steps"], 3000 / 32 + 1);
  // A head of ten knows five.
  const json all = RunCentral(From("base", kStill));
  EXPECT_LT(all["accuracy"], 0.55);
  EXPECT_GT(all["accuracy"], 0.4);
  Process resumed(
      {"runnel-central", "eval", "--checkpoint-dir", dir_ / "base", "--summary", dir_ / "e"});
  EXPECT_EQ(resumed.Wait(), 0) << resumed.err();
  EXPECT_EQ(Summary(dir_ / "e")["accuracy"], few["accuracy"]);
}

TEST_F(Adapters, RecomputedLayersTrainToTheSameBytes) {
  for (const char* recipe : {"fp32", "bf16", "dorefa:4,4,8"}) {
    const Words run = With(kLenet, {"--recipe", recipe, "--max-batches", "6"});
    const std::string kept = Weights(With(run, {"--local-workers", "0"}));
    for (const char* workers : {"0", "1", "3"}) {
      const Words again = {"--recompute", "0-5", "--local-workers", workers};
      EXPECT_EQ(Weights(With(run, again)), kept) << recipe << ", " << workers << " stages";
    }
  }
  const Words plain = {
      "train",        "--quick", "--model",         "lenet", "--dataset",     "synthetic_digits",
      "--batch-size", "32",      "--barrier-every", "10",    "--eval-every",  "0",
      "--epochs",     "1",       "--local-workers", "3",     "--max-batches", "20"};
  EXPECT_EQ(Weights(With(plain, {"--recompute", "0-4"})), Weights(plain))
      << "backwards of older versions";
}

TEST_F(Adapters, ANarrowStashGivesTheSameBytesHoweverItIsCut) {
  for (const char* recipe : {"fp32", "bf16", "dorefa:4,4,8", "sbm:8,8,16", "fp8_chunk"}) {
    const Words run = With(kLenet, {"--recipe", recipe, "--max-batches", "6"});
    const std::string kept = Weights(With(run, {"--local-workers", "1"}));
    for (const char* type : {"bf16", "e4m3"}) {
      const Words narrow = With(run, {"--stash", type, "--local-workers"});
      const std::string one = Weights(With(narrow, {"1"}));
      EXPECT_EQ(Weights(With(narrow, {"0"})), one) << recipe << ", " << type;
      EXPECT_EQ(Weights(With(narrow, {"3"})), one) << recipe << ", " << type;
      // sbm's products read codes, and what else LeNet's backward reads are signs.
      const bool reads_more = recipe != std::string("bf16") && recipe != std::string("sbm:8,8,16");
      const bool is_smaller = reads_more || std::string(type) == "e4m3";
      EXPECT_EQ(one != kept, is_smaller) << recipe << ", " << type;
    }
  }
}

TEST_F(Adapters, BadInputIsOneLine) {
  const auto refused = [](const Words& flags, const std::string& words) {
    ExpectRefused(With(kLenet, flags), words);
  };
  refused(
      {"--rewrite", "lora:11"},
      "--rewrite lora:11: layer 5 (fc2), op 0: 500 features become 10; a pair's rank is at most");
  refused({"--rewrite", "lora:x"}, "--rewrite lora:x: 'x' is no rank from 1");
  refused({"--rewrite", "lora:2", "--recipe", "niti"}, "begins at zero, which has no scale");
  refused({"--rewrite", "lora:2", "--recipe", "dorefa:4,4,8"}, "begins at zero");
  refused({"--rewrite", "head:1"}, "--rewrite head:1: '1' is no number of classes from 2");
  refused({"--rewrite", "head:7"}, "has 10 classes, model lenet 7");
  refused({"--recompute", "6-7"}, "--recompute 6-7: layer 7 is beyond the model");
  refused({"--recompute", "on"}, "--recompute on: 'on' is no number of layers");
  refused({"--recompute", "2", "--recipe", "niti"}, "are not made again in the backward");
  refused({"--recompute", "auto", "--recipe", "niti"}, "are not made again in the backward");
  refused({"--recompute", "auto", "--recipe", "afp"}, "have moved on when the backward makes");
  refused({"--recompute", "auto", "--stash", "e4m3"}, "weights would follow from the plan");
  refused({"--stash", "f32"},
          "--stash f32: activations are kept as fp16, bf16, e4m3, e5m2, or off");
  refused({"--stash", "bf16", "--recipe", "niti"}, "are kept for the backward as they are");
  refused({"--classes", "0-10"}, "--classes 0-10: there is no class 10, they are 0 to 9");
  refused({"--classes", "two"}, "--classes two: 'two' is neither a class nor a range such as 0-8");
}

}  // namespace
}  // namespace runnel::adapters_test
