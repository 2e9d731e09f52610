// Texts on real workers: each byte predicts the next, on one to three stages, over a check-point and
// again from the journal; what does not fit together is one line.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "tests/process/central_runs.h"

namespace runnel::tokens_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

// Of ten words, by a generator of its own: the byte behind a byte is far from random.
std::string Text(uint32_t seed, size_t bytes) {
  constexpr const char* kWords[] = {"the ", "river ", "runs ", "from ", "hills ",
                                    "to ",  "sea ",   "and ",  "back ", "again.\n"};
  std::string text;
  while (text.size() < bytes) {
    seed = seed * 1664525 + 1013904223;
    text += kWords[(seed >> 16) % std::size(kWords)];
  }
  return text;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class Tokens : public testing::Test {
 protected:
  void SetUp() override {
    Write(dir_ / "train.txt", Text(1, 40'000));
    Write(dir_ / "test.txt", Text(2, 4'000));
  }
  std::string Show(const std::string& model) {
    Process show({"runnel-central", "show", model});
    EXPECT_EQ(show.Wait(), 0) << show.err();
    return show.out();
  }

  ScratchDir dir_;
  const Words data_ = {"--data", "wikitext2", "--data-dir", dir_.path()};
  const Words run_ =
      With({"train", "--model", "bigram", "--batch-size", "16", "--epochs", "3", "--schedule",
            "sync_1f1b", "--micro-batches", "2", "--backend", "cpu", "--barrier-every", "20"},
           data_);
};

TEST_F(Tokens, AreLearnedWithTheSameBytesOnOneToThreeStages) {
  const nlohmann::json plain = RunCentral(With(run_, {"--local-workers", "0"}));
  // Words have 5 letters; a byte alone leaves the next word's first letter open.
  EXPECT_LT(plain["loss"], 1.2);
  EXPECT_GT(plain["accuracy"], 0.4);
  EXPECT_LT(plain["accuracy"], 1);
  for (const char* workers : {"1", "2", "3"}) {
    const nlohmann::json cut = RunCentral(With(run_, {"--local-workers", workers}));
    EXPECT_EQ(cut["weights_sha256"], plain["weights_sha256"]) << workers << " stages";
    EXPECT_EQ(cut["accuracy"], plain["accuracy"]) << workers << " stages";
    EXPECT_EQ(cut["loss"], plain["loss"]) << workers << " stages";
  }
  Words reference = With(run_, {"--local-workers", "1"});
  *std::find(reference.begin(), reference.end(), "cpu") = "ref";
  EXPECT_NEAR(RunCentral(reference)["loss"].get<double>(), plain["loss"].get<double>(), 1e-3);
}

TEST_F(Tokens, ResumeAndReplayGiveTheSameBytes) {
  const Words on_three = With(run_, {"--local-workers", "3"});
  const std::string whole = Weights(With(on_three, {"--journal", dir_ / "j"}));
  RunCentral(With(on_three, {"--max-batches", "40", "--checkpoint-dir", dir_ / "c"}));
  EXPECT_EQ(Weights({"resume", "--checkpoint-dir", dir_ / "c", "--max-batches", "1000000",
                     "--local-workers", "2"}),
            whole);
  Replay(dir_ / "j");
  Process quantize(
      {"runnel-central", "quantize", "--checkpoint-dir", dir_ / "c", "--out", dir_ / "q"});
  EXPECT_EQ(quantize.Wait(), 2) << quantize.out();
  EXPECT_THAT(quantize.err(), HasSubstr("model bigram has tokens"));
}

TEST_F(Tokens, CrossLinksAsynchronouslyAndCompressed) {
  const Words run =
      With({"train", "--model", "bigram", "--batch-size", "16", "--epochs", "3", "--local-workers",
            "3", "--codec-forward", "mbq:4", "--codec-backward", "stochastic:8"},
           data_);
  EXPECT_LT(RunCentral(run)["loss"], 1.4);
}

// One block of a decoder.
constexpr const char* kDecoder = R"({"format": "runnel-model", "version": 1, "name": "decoder",
  "input": [128], "classes": 256, "layers": [
  {"name": "embedding", "ops": [{"op": "embedding", "rows": 256, "out": 16, "positions": true,
                                 "init": "normal", "init_std": 0.1}]},
  {"name": "block", "ops": [
    {"op": "layer_norm"}, {"op": "linear", "out": 48, "bias": true},
    {"op": "attention", "heads": 2}, {"op": "linear", "out": 16, "bias": true},
    {"op": "add", "from": [0, 4]},
    {"op": "layer_norm"}, {"op": "linear", "out": 32, "bias": true},
    {"op": "gelu"}, {"op": "linear", "out": 16, "bias": true},
    {"op": "add", "from": [5, 9]}]},
  {"name": "head", "ops": [{"op": "layer_norm"}, {"op": "linear", "out": 256}]}]})";

TEST_F(Tokens, ADecoderLearnsTheSameOnOneAndThreeStages) {
  Write(dir_ / "decoder.json", kDecoder);
  Words run = With(run_, {"--optimizer", "adamw", "--lr", "0.01"});
  *std::find(run.begin(), run.end(), "bigram") = absl::StrCat("json:", dir_ / "decoder.json");
  const nlohmann::json plain = RunCentral(With(run, {"--local-workers", "0"}));
  EXPECT_LT(plain["loss"], 1.2);
  EXPECT_GT(plain["accuracy"], 0.4);
  const nlohmann::json cut = RunCentral(With(run, {"--local-workers", "3"}));
  EXPECT_EQ(cut["weights_sha256"], plain["weights_sha256"]);
  *std::find(run.begin(), run.end(), "cpu") = "ref";
  EXPECT_NEAR(RunCentral(With(run, {"--local-workers", "0"}))["loss"].get<double>(),
              plain["loss"].get<double>(), 0.02);
}

TEST_F(Tokens, ADecoderLearnsInSixteenBits) {
  Write(dir_ / "decoder.json", kDecoder);
  Words run = With(run_, {"--optimizer", "adamw", "--lr", "0.01"});
  *std::find(run.begin(), run.end(), "bigram") = absl::StrCat("json:", dir_ / "decoder.json");
  for (const char* recipe : {"bf16", "fp16"}) {
    const Words of_recipe = With(run, {"--recipe", recipe});
    const nlohmann::json cut = RunCentral(With(of_recipe, {"--local-workers", "3"}));
    EXPECT_LT(cut["loss"], 1.25) << recipe;
    const Words few = With(of_recipe, {"--max-batches", "5", "--eval-every", "-1"});
    const std::string want = Weights(With(few, {"--local-workers", "0"}));
    EXPECT_EQ(Weights(With(few, {"--local-workers", "2"})), want) << recipe;
    Words reference = few;
    *std::find(reference.begin(), reference.end(), "cpu") = "ref";
    EXPECT_EQ(Weights(With(reference, {"--local-workers", "0"})), want) << recipe;
  }
}

// What follows a text: on the screen, as a class, as all outputs; also where the data set is not.
TEST_F(Tokens, WhatFollowsATextIsPredicted) {
  RunCentral(With(run_, {"--local-workers", "0", "--checkpoint-dir", dir_ / "c"}));
  std::filesystem::remove(dir_ / "train.txt");
  std::filesystem::remove(dir_ / "test.txt");
  Write(dir_ / "short.txt", "the riv");
  Write(dir_ / "long.txt", absl::StrCat(Text(3, 400), "the bac"));
  const Words from = {"predict", "--checkpoint-dir", dir_ / "c"};
  const auto predict = [&](const Words& words) {
    Process process(With({"runnel-central"}, With(from, words)));
    EXPECT_EQ(process.Wait(), 0) << process.err();
    return process.out();
  };
  const std::string screen = predict({dir_ / "short.txt", dir_ / "long.txt"});
  EXPECT_THAT(screen, ContainsRegex("short.txt: 'e' [0-9.]+ %"));
  EXPECT_THAT(screen, ContainsRegex("long.txt: 'k' [0-9.]+ %"));
  predict({dir_ / "short.txt", "--out", dir_ / "p.csv"});
  EXPECT_THAT(ReadFile(dir_ / "p.csv"),
              ContainsRegex("index,class,probability\n0,'e',0[.][0-9]+\n"));
  predict({dir_ / "short.txt", "--out", dir_ / "p.npy"});
  EXPECT_EQ(ReadFile(dir_ / "p.npy").size(), 128 + 256 * sizeof(float));
  Write(dir_ / "empty.txt", "");
  ExpectRefused(With(from, {dir_ / "empty.txt"}), "empty.txt: has samples of 0 tokens");
  ExpectRefused(With(from, {dir_ / "none.txt"}), "none.txt");
}

// Of a decoder each output depends on the tokens before it alone: what lies behind a short text does
// not count.
TEST_F(Tokens, ADecoderPredictsByWords) {
  std::string decoder = absl::StrReplaceAll(kDecoder, {{"\"rows\": 256", "\"rows\": 11"},
                                                       {"\"out\": 256", "\"out\": 11"},
                                                       {"\"classes\": 256", "\"classes\": 11"}});
  Write(dir_ / "decoder.json", decoder);
  // After each word the next one of the sentence.
  std::string text;
  for (int i = 0; i < 300; ++i) text += "the river runs from hills to sea and back again.\n";
  Write(dir_ / "train.txt", text);
  Write(dir_ / "test.txt", text);
  RunCentral({"train", "--model", absl::StrCat("json:", dir_ / "decoder.json"), "--data",
              "wikitext2_words", "--data-dir", dir_.path(), "--batch-size", "4", "--epochs", "12",
              "--optimizer", "adamw", "--lr", "0.01", "--local-workers", "0", "--checkpoint-dir",
              dir_ / "c"});
  Write(dir_ / "a.txt", "the river");
  Write(dir_ / "b.txt", absl::StrCat(text, "the river runs from"));
  Write(dir_ / "c.txt", "the brook");
  const Words from = {"predict", "--checkpoint-dir", dir_ / "c"};
  Process predict(With({"runnel-central"}, With(from, {dir_ / "a.txt", dir_ / "b.txt"})));
  EXPECT_EQ(predict.Wait(), 0) << predict.err();
  EXPECT_THAT(predict.out(), HasSubstr("a.txt: runs "));
  EXPECT_THAT(predict.out(), HasSubstr("b.txt: hills "));
  ExpectRefused(With(from, {dir_ / "c.txt"}), "c.txt: the word 'brook' is not in the training");
}

TEST_F(Tokens, AModelFromAFile) {
  const std::string file = dir_ / "net.json";
  const std::string text = Show("bigram");
  EXPECT_THAT(text, HasSubstr("\"embedding\""));
  Write(file, text);
  EXPECT_EQ(Show(absl::StrCat("json:", file)), text);
  std::string small = text;
  small.replace(small.find("\"rows\":256"), 10, "\"rows\":128");
  Write(file, small);
  ExpectRefused(With({"train", "--model", absl::StrCat("json:", file)}, data_),
                "--dataset wikitext2: has tokens below 256, the embedding of model bigram has 128 "
                "rows; give it as many");
  std::string few = text;
  few.replace(few.find("\"classes\": 256"), 14, "\"classes\": 99");
  Write(file, few);
  ExpectRefused(With({"train", "--model", absl::StrCat("json:", file)}, data_), "needs (batch, 99");
}

TEST_F(Tokens, WhatDoesNotFitIsOneLine) {
  ExpectRefused(
      With({"train", "--model", "lenet"}, data_),
      "--dataset wikitext2: its samples are tokens 128, model lenet takes numbers 1x28x28");
  ExpectRefused({"train", "--model", "bigram", "--data", "synthetic_digits"},
                "--dataset synthetic_digits: its samples are numbers 1x28x28, model bigram takes "
                "tokens 128");
  Write(dir_ / "t.csv", "1,2,a\n2,1,b\n3,1,a\n1,1,b\n");
  ExpectRefused({"train", "--model", "bigram", "--data", absl::StrCat("csv:", dir_ / "t.csv")},
                "its samples are numbers 2, model bigram takes tokens 2");
  ExpectRefused(With(run_, {"--recipe", "niti"}),
                "layer embedding, op 0 (embedding): tables are FP32; take --recipe fp32");
  ExpectRefused(With(run_, {"--augment", "flip"}), "--augment flip: ");
  Write(dir_ / "test.txt", "short");
  ExpectRefused(run_, "test.txt: has 5 bytes, one sample needs 129");
}

}  // namespace
}  // namespace runnel::tokens_test
