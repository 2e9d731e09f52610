// People with their own network and data: a table, arrays and pictures train on real workers, and
// what is wrong with them is one line.

#include <png.h>

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "central/data/dataset.h"
#include "gmock/gmock.h"
#include "onnx/onnx_pb.h"
#include "tests/process/central_runs.h"

namespace runnel::own_data_test {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Three kinds of flowers around three places of a plane, one column more that says nothing.
std::string Flowers() {
  std::string text = "width,length,garden,species\n";
  for (int i = 0; i < 300; ++i) {
    const int kind = i % 3;
    const double angle = i * 2.4, far = 0.3 + 0.01 * (i % 50);
    absl::StrAppend(&text, kind * 2 + far * std::cos(angle), ",",
                    (kind == 1 ? 3 : 0) + far * std::sin(angle), ",",
                    i % 2 == 0 ? "north" : "south", ",",
                    kind == 0   ? "rose"
                    : kind == 1 ? "tulip"
                                : "daisy",
                    "\n");
  }
  return text;
}

void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class OwnData : public testing::Test {
 protected:
  void SetUp() override { Write(dir_ / "flowers.csv", Flowers()); }

  ScratchDir dir_;
  const Words table_ = {
      "train",    "--model", "mlp", "--data", absl::StrCat("csv:", dir_ / "flowers.csv"),
      "--epochs", "8"};
};

// On one device, on three stages, in integers, from a check-point, again from the journal.
TEST_F(OwnData, ATableIsLearned) {
  const Words three = With(table_, {"--local-workers", "3", "--schedule", "sync_1f1b"});
  const nlohmann::json whole = RunCentral(With(
      three, {"--micro-batches", "1", "--journal", dir_ / "j", "--checkpoint-dir", dir_ / "c"}));
  EXPECT_GT(whole["accuracy"], 0.95);
  EXPECT_EQ(Weights(With(table_, {"--local-workers", "0"})), whole["weights_sha256"]);
  Replay(dir_ / "j");
  Process eval({"runnel-central", "eval", "--checkpoint-dir", dir_ / "c", "--summary", dir_ / "e"});
  EXPECT_EQ(eval.Wait(), 0) << eval.err();
  EXPECT_EQ(Summary(dir_ / "e")["accuracy"], whole["accuracy"]);
  EXPECT_GT(RunCentral(With(table_, {"--local-workers", "2", "--recipe", "niti"}))["accuracy"],
            0.9);
}

// Samples that are more than central keeps are read from the file while it trains and evaluates.
TEST_F(OwnData, ATableBeyondMemory) {
  std::string text = "word,label\n";
  for (int i = 0; i < 210'000; ++i)
    absl::StrAppend(&text, "w", 100 + i * 7 % 250, ",", i * 7 % 250 < 125 ? "low" : "high", "\n");
  Write(dir_ / "large.csv", text);
  const Words run = {"train",         "--quick",
                     "--model",       "mlp",
                     "--data",        absl::StrCat("csv:", dir_ / "large.csv"),
                     "--batch-size",  "500",
                     "--max-batches", "20"};
  const nlohmann::json whole = RunCentral(
      With(run, {"--local-workers", "2", "--schedule", "sync_1f1b", "--micro-batches", "1"}));
  EXPECT_GT(whole["accuracy"], 0.8);
  const nlohmann::json plain = RunCentral(With(run, {"--local-workers", "0"}));
  EXPECT_EQ(plain["weights_sha256"], whole["weights_sha256"]);
  EXPECT_EQ(plain["accuracy"], whole["accuracy"]);
}

TEST_F(OwnData, ANetworkFromAFile) {
  Process show({"runnel-central", "show", "mlp"});
  ASSERT_EQ(show.Wait(), 0) << show.err();
  std::string text = show.out();
  const std::string file = dir_ / "net.json";
  Write(file, text);
  Process again({"runnel-central", "show", absl::StrCat("json:", file)});
  EXPECT_EQ(again.Wait(), 0) << again.err();
  EXPECT_EQ(again.out(), text);
  Words run = table_;
  run[2] = absl::StrCat("json:", file);
  const nlohmann::json summary = RunCentral(With(run, {"--local-workers", "2"}));
  EXPECT_GT(summary["accuracy"], 0.9);
  text.replace(text.find("\"relu\""), 6, "\"selu\"");
  Write(file, text);
  ExpectRefused(run, "layer 0: op 2: operator 'selu' is not known");
  run[2] = absl::StrCat("json:", dir_ / "none.json");
  ExpectRefused(run, "none.json");
}

// Trained weights go out as ONNX and come back: as a model of its own, and into the zoo's.
TEST_F(OwnData, WeightsGoOutAndComeBack) {
  const nlohmann::json trained =
      RunCentral(With(table_, {"--local-workers", "2", "--checkpoint-dir", dir_ / "c"}));
  EXPECT_GT(trained["accuracy"], 0.95);
  Process out({"runnel-central", "export", "--checkpoint-dir", dir_ / "c", "--onnx",
               dir_ / "m.onnx", "--npz", dir_ / "m.npz"});
  ASSERT_EQ(out.Wait(), 0) << out.err();
  EXPECT_THAT(out.out(), AllOf(HasSubstr("m.onnx"), HasSubstr("m.npz")));
  // What the file says of its data reads samples.
  onnx::ModelProto exported;
  ASSERT_TRUE(exported.ParseFromString(ReadFile(dir_ / "m.onnx")));
  ASSERT_EQ(exported.metadata_props_size(), 1);
  EXPECT_EQ(exported.metadata_props(0).key(), "runnel.data");
  const auto description = ParseDescription(exported.metadata_props(0).value());
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_THAT(description->classes, ElementsAre("daisy", "rose", "tulip"));
  const auto samples = (*DescribedDataset(*description))->Unlabelled(dir_ / "flowers.csv");
  ASSERT_TRUE(samples.ok()) << samples.status();
  EXPECT_EQ((*samples)->size(), 300);
  EXPECT_EQ((*samples)->sample_shape(), Shape({4})) << "two numbers, a text of two";
  // One step of nothing.
  const Words still = {"--max-batches", "1", "--lr", "1e-12", "--warm-up-steps", "0"};
  Words onnx = With(With(table_, still), {"--local-workers", "3", "--journal", dir_ / "j"});
  onnx[2] = absl::StrCat("onnx:", dir_ / "m.onnx");
  EXPECT_EQ(RunCentral(onnx)["accuracy"], trained["accuracy"]);
  Replay(dir_ / "j");
  const Words from = With(With(table_, still), {"--init-from", dir_ / "c", "--local-workers"});
  EXPECT_EQ(RunCentral(With(from, {"0"}))["accuracy"], trained["accuracy"]);
  EXPECT_EQ(RunCentral(With(from, {"2"}))["accuracy"], trained["accuracy"]);
  // Other classes: the last layer begins anew, and central says so.
  Write(dir_ / "two.csv", "a,b,c,d,y\n1,2,3,4,p\n2,3,4,5,q\n1,2,3,4,p\n2,3,4,5,q\n");
  Words other = With(from, {"2"});
  other[4] = absl::StrCat("csv:", dir_ / "two.csv");
  Process second(With(With({"runnel-central"}, other), {"--quick", "--batch-size", "2"}));
  EXPECT_EQ(second.Wait(), 0) << second.err();
  EXPECT_THAT(second.err(), HasSubstr("1 are drawn: fc3.0.weight (2x64)"));
  ExpectRefused(With(table_, {"--init-from", dir_ / "none"}), "--init-from");
  Write(dir_ / "bad.onnx", "no graph");
  onnx[2] = absl::StrCat("onnx:", dir_ / "bad.onnx");
  ExpectRefused(onnx, "bad.onnx: is no ONNX model");
  std::string* bytes = exported.mutable_graph()->mutable_initializer(0)->mutable_raw_data();
  ASSERT_GE(bytes->size(), 4u);
  bytes->replace(0, 4, std::string("\0\0\xC0\x7F", 4));
  Write(dir_ / "nan.onnx", exported.SerializeAsString());
  onnx[2] = absl::StrCat("onnx:", dir_ / "nan.onnx");
  ExpectRefused(onnx, " holds nan: its training had diverged when it was written");
}

// One colour a class, with some noise.
void WritePicture(const std::string& path, int side, int kind, int number) {
  std::vector<uint8_t> rgb;
  for (int i = 0; i < side * side; ++i) {
    for (int c = 0; c < 3; ++c)
      rgb.push_back(static_cast<uint8_t>((c == kind ? 180 : 60) + (i * 7 + number * 13 + c) % 50));
  }
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = static_cast<uint32_t>(side);
  image.format = PNG_FORMAT_RGB;
  ASSERT_NE(png_image_write_to_file(&image, path.c_str(), 0, rgb.data(), 0, nullptr), 0);
}

TEST_F(OwnData, AFolderOfPicturesTrainsANetOfTheZoo) {
  for (int kind = 0; kind < 3; ++kind) {
    std::filesystem::create_directories(dir_ / absl::StrCat("p/kind", kind));
    for (int i = 0; i < 40; ++i)
      WritePicture(dir_ / absl::StrCat("p/kind", kind, "/", i, ".png"), 20 + i, kind, i);
  }
  const nlohmann::json summary = RunCentral(
      {"train", "--model", "lenet", "--data", absl::StrCat("images:", dir_ / "p", ",size=28"),
       "--local-workers", "2", "--batch-size", "16", "--epochs", "3"});
  EXPECT_GT(summary["accuracy"], 0.9);
}

// Two arrays of NumPy: the flowers' places, and their kinds.
void WriteArrays(const std::string& samples, const std::string& labels, int count, int seed) {
  std::vector<float> places;
  std::vector<int64_t> kinds;
  for (int i = 0; i < count; ++i) {
    const int kind = (i * 7 + seed) % 3;
    const double angle = i * 2.4 + seed, far = 0.8 + 0.01 * (i % 50);
    places.push_back(static_cast<float>(kind + far * std::cos(angle)));
    places.push_back(static_cast<float>((kind == 1 ? 2 : 0) + far * std::sin(angle)));
    kinds.push_back(kind);
  }
  const auto write = [](const std::string& path, const std::string& type, const std::string& shape,
                        const void* values, size_t bytes) {
    std::string header =
        absl::StrCat("{'descr': '", type, "', 'fortran_order': False, 'shape': (", shape, "), }");
    header.resize(117, ' ');
    Write(path, absl::StrCat(std::string("\x93NUMPY\x01\x00\x76\x00", 10), header, "\n",
                             std::string(static_cast<const char*>(values), bytes)));
  };
  write(samples, "<f4", absl::StrCat(count, ", 2"), places.data(), places.size() * sizeof(float));
  write(labels, "<i8", absl::StrCat(count, ","), kinds.data(), kinds.size() * sizeof(int64_t));
}

// Share of the lines whose class is that of WriteArrays.
double Accuracy(const std::string& path, int count, int seed) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "index,class,probability");
  int right = 0;
  for (int i = 0; i < count; ++i) {
    EXPECT_TRUE(std::getline(file, line));
    right += line.starts_with(absl::StrCat(i, ",", (i * 7 + seed) % 3, ",")) ? 1 : 0;
  }
  EXPECT_FALSE(std::getline(file, line));
  return static_cast<double>(right) / count;
}

std::string Predict(const Words& words) {
  Process predict(With({"runnel-central", "predict"}, words));
  EXPECT_EQ(predict.Wait(), 0) << predict.err();
  return predict.out();
}

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The classes that predict writes are those that eval counts, in FP32 and in integers, from the data
// set's test and from a file without labels.
TEST_F(OwnData, PredictionsAreWhatEvalCounts) {
  WriteArrays(dir_ / "x.npy", dir_ / "y.npy", 300, 0);
  WriteArrays(dir_ / "new.npy", dir_ / "kinds.npy", 90, 1);
  const std::string data = absl::StrCat("npy:", dir_ / "x.npy", ",", dir_ / "y.npy",
                                        ",test=", dir_ / "new.npy", ";", dir_ / "kinds.npy");
  const double trained =
      RunCentral({"train", "--model", "mlp", "--data", data, "--epochs", "4", "--local-workers",
                  "2", "--checkpoint-dir", dir_ / "c"})["accuracy"];
  EXPECT_GT(trained, 0.6);
  EXPECT_LT(trained, 1);  // else a wrong order could be right
  const Words from = {"--checkpoint-dir", dir_ / "c", "--out", dir_ / "p.csv"};
  EXPECT_THAT(Predict(from), HasSubstr("90 predictions"));
  EXPECT_NEAR(Accuracy(dir_ / "p.csv", 90, 1), trained, 1e-9);
  const std::string classes = Bytes(dir_ / "p.csv");
  const Words unlabelled = {"--data", absl::StrCat("npy:", dir_ / "new.npy")};
  Predict(With(from, unlabelled));
  EXPECT_EQ(Bytes(dir_ / "p.csv"), classes);
  Predict(With({"--checkpoint-dir", dir_ / "c", "--out", dir_ / "p.npy"}, unlabelled));
  EXPECT_EQ(Bytes(dir_ / "p.npy").size(), 128 + 90 * 3 * sizeof(float));
  Process quantize(
      {"runnel-central", "quantize", "--checkpoint-dir", dir_ / "c", "--out", dir_ / "m.q8"});
  ASSERT_EQ(quantize.Wait(), 0) << quantize.err();
  Process eval({"runnel-central", "eval", "--quantized", dir_ / "m.q8", "--summary", dir_ / "e"});
  ASSERT_EQ(eval.Wait(), 0) << eval.err();
  Predict({"--quantized", dir_ / "m.q8", "--out", dir_ / "q.csv"});
  EXPECT_NEAR(Accuracy(dir_ / "q.csv", 90, 1), Summary(dir_ / "e")["accuracy"], 1e-9);
  // Where the data set is not, by a file alone; on the screen; on another backend.
  const std::string in_integers = Bytes(dir_ / "q.csv"), moved = dir_ / "elsewhere";
  std::filesystem::create_directory(moved);
  for (const char* name : {"x.npy", "y.npy"}) std::filesystem::remove(dir_ / name);
  std::filesystem::rename(dir_ / "c", absl::StrCat(moved, "/c"));
  std::filesystem::rename(dir_ / "m.q8", absl::StrCat(moved, "/m.q8"));
  const Words trained_there = {dir_ / "new.npy", "--checkpoint-dir", absl::StrCat(moved, "/c")};
  Predict(With(trained_there, {"--out", dir_ / "there.csv"}));
  EXPECT_EQ(Bytes(dir_ / "there.csv"), classes);
  Predict(
      {dir_ / "new.npy", "--quantized", absl::StrCat(moved, "/m.q8"), "--out", dir_ / "there.csv"});
  EXPECT_EQ(Bytes(dir_ / "there.csv"), in_integers);
  const std::string screen = Predict(With(trained_there, {"--backend", "ref"}));
  EXPECT_EQ(std::count(screen.begin(), screen.end(), '\n'), 90);
  EXPECT_THAT(screen, ContainsRegex("new.npy.89.: [012] [0-9.]+ %"));
  ExpectRefused(With({"predict"}, With(trained_there, {"--backend", "none"})),
                "backend 'none' is not known; there is auto, cpu");
  ExpectRefused({"predict", "--checkpoint-dir", absl::StrCat(moved, "/c")},
                "x.npy: No such file or directory");
  std::filesystem::rename(absl::StrCat(moved, "/c"), dir_ / "c");
  // What is wrong is one line, and no file.
  const auto refused = [this](const std::string& samples, const std::string& message) {
    ExpectRefused(
        {"predict", "--checkpoint-dir", dir_ / "c", "--out", dir_ / "n.csv", "--data", samples},
        message);
    EXPECT_FALSE(std::filesystem::exists(dir_ / "n.csv"));
  };
  refused(absl::StrCat("npy:", dir_ / "kinds.npy"), "kinds.npy: its shape is");
  refused(absl::StrCat("npy:", dir_ / "none.npy"), "none.npy");
  refused(absl::StrCat("csv:", dir_ / "flowers.csv"), "the model was trained on npy:");
  ExpectRefused({"predict", "--checkpoint-dir", dir_ / "c", "--out", dir_ / "n.txt"},
                "ends neither in .csv");
  ExpectRefused({"predict", "--out", dir_ / "n.csv"}, "either --checkpoint-dir or --quantized");
}

// A class's name is a text that is printed and kept, also where it reads as a path or steers a terminal:
// no file is named by it.
TEST_F(OwnData, NamesOfClassesAreNoPaths) {
  const std::string own = dir_ / "own";
  std::filesystem::create_directory(own);
  Write(absl::StrCat(own, "/flowers.csv"),
        absl::StrReplaceAll(Flowers(), {{"daisy", "\"..\x1b[2J\n/daisy\""},
                                        {"rose", "../rose"},
                                        {"tulip", absl::StrCat(dir_ / "tulip")}}));
  const std::string made = absl::StrCat(own, "/c"), classes = absl::StrCat(own, "/p.csv");
  Words run = With(table_, {"--local-workers", "0", "--checkpoint-dir", made});
  run[4] = absl::StrCat("csv:", own, "/flowers.csv");
  const nlohmann::json summary = RunCentral(run);
  EXPECT_GT(summary["accuracy"], 0.95);
  EXPECT_EQ(summary["classes"][0]["name"], "..\x1b[2J\n/daisy");
  EXPECT_EQ(summary["classes"][1]["name"], "../rose");
  EXPECT_EQ(summary["classes"][2]["name"], dir_ / "tulip");
  const Words from = {absl::StrCat(own, "/flowers.csv"), "--checkpoint-dir", made};
  const std::string screen = Predict(from);
  EXPECT_EQ(std::count(screen.begin(), screen.end(), '\n'), 300);
  EXPECT_THAT(screen, AllOf(HasSubstr(": ../rose "), HasSubstr(": ..\\033[2J\\n/daisy "),
                            Not(HasSubstr("\x1b"))));
  Predict(With(from, {"--out", classes}));
  EXPECT_THAT(Bytes(classes),
              AllOf(HasSubstr("\n0,../rose,"), HasSubstr(absl::StrCat("\n1,", dir_ / "tulip", ",")),
                    HasSubstr("\n2,\"..\x1b[2J\n/daisy\",")));
  Process out({"runnel-central", "export", "--checkpoint-dir", made, "--onnx",
               absl::StrCat(own, "/m.onnx")});
  EXPECT_EQ(out.Wait(), 0) << out.err();
  EXPECT_THAT(Bytes(absl::StrCat(own, "/m.onnx")), HasSubstr("\nclass ..\\033[2J\\n/daisy\n"));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(dir_ / ""))
    EXPECT_THAT(entry.path().filename().string(), Not(ContainsRegex("rose|tulip|daisy")));
}

// Steps that change nothing bring no new best: two evaluations behind the first one the run ends, also
// where it was resumed in between, and replay ends there too.
TEST_F(OwnData, ARunThatLearnsNothingMoreEnds) {
  const Words run = With(
      table_, {"--batch-size", "60", "--barrier-every", "4", "--lr", "1e-12", "--warm-up-steps",
               "0", "--local-workers", "0", "--early-stop", "2", "--checkpoint-dir"});
  const nlohmann::json whole = RunCentral(With(run, {dir_ / "c", "--journal", dir_ / "j"}));
  EXPECT_EQ(whole["steps"], 12);
  EXPECT_TRUE(whole.value("stopped_early", false));
  EXPECT_EQ(whole["evaluations"].size(), 3u);
  EXPECT_THAT(Replay(dir_ / "j"), HasSubstr("replayed 12 steps"));
  EXPECT_FALSE(RunCentral(With(run, {dir_ / "d", "--max-batches", "8"})).contains("stopped_early"));
  Process resume({"runnel-central", "resume", "--checkpoint-dir", dir_ / "d", "--max-batches", "32",
                  "--summary", dir_ / "s"});
  EXPECT_EQ(resume.Wait(), 0) << resume.err();
  EXPECT_EQ(Summary(dir_ / "s")["steps"], 12);
  EXPECT_EQ(Summary(dir_ / "s")["weights_sha256"], whole["weights_sha256"]);
  EXPECT_THAT(resume.out(), HasSubstr("no better in 2 evaluations"));
  ExpectRefused(With(table_, {"--early-stop", "2", "--eval-every", "0"}), "--early-stop 2: needs");
}

// Samples to choose by, spread labels and averaged weights: the same on one device, on three stages and
// where the run was resumed. The test set is seen once, by the average, as eval sees it.
TEST_F(OwnData, ValidationSmoothedLabelsAndAverages) {
  const Words run = With(table_, {"--batch-size", "32", "--barrier-every", "4", "--micro-batches",
                                  "1", "--schedule", "sync_1f1b", "--validation-share", "0.2",
                                  "--label-smoothing", "0.1", "--ema", "0.9", "--checkpoint-dir"});
  const nlohmann::json whole = RunCentral(With(run, {dir_ / "c", "--local-workers", "0"}));
  EXPECT_EQ(whole["steps"], 8 * 6) << "of 240 samples 192 are trained";
  EXPECT_GT(whole["test"]["accuracy"], 0.8);
  EXPECT_NE(whole["test"]["loss"], whole["loss"]);
  EXPECT_EQ(whole["classes"][0]["name"], "daisy");
  EXPECT_EQ(whole["classes"][0]["labels"], 16) << "of 48 validation samples";
  EXPECT_EQ(whole["test"]["classes"][0]["labels"], 20);
  EXPECT_EQ(whole["top_5"], 1) << "of three classes";
  const nlohmann::json three = RunCentral(With(run, {dir_ / "t", "--local-workers", "3"}));
  RunCentral(With(run, {dir_ / "d", "--local-workers", "2", "--max-batches", "20"}));
  Process resume({"runnel-central", "resume", "--checkpoint-dir", dir_ / "d", "--max-batches", "48",
                  "--summary", dir_ / "s"});
  EXPECT_EQ(resume.Wait(), 0) << resume.err();
  for (const nlohmann::json& other : {three, Summary(dir_ / "s")}) {
    for (const char* key : {"weights_sha256", "accuracy", "loss", "test", "confusion"})
      EXPECT_EQ(other[key], whole[key]) << key;
  }
  Process eval({"runnel-central", "eval", "--checkpoint-dir", dir_ / "t", "--summary", dir_ / "e"});
  EXPECT_EQ(eval.Wait(), 0) << eval.err();
  for (const char* key : {"accuracy", "loss", "confusion"})
    EXPECT_EQ(Summary(dir_ / "e")[key], whole["test"][key]) << key;
  EXPECT_NE(Summary(dir_ / "e")["weights_sha256"], whole["weights_sha256"]) << "the average";
  ExpectRefused(With(table_, {"--validation-share", "0.001"}), "--validation-share 0.001: of 240");
}

TEST_F(OwnData, WhatIsWrongIsOneLine) {
  const auto with_data = [this](const std::string& data) {
    Words words = table_;
    words[4] = data;
    return words;
  };
  ExpectRefused(with_data(absl::StrCat("csv:", dir_ / "none.csv")), "none.csv");
  ExpectRefused(with_data(absl::StrCat("csv:", dir_ / "flowers.csv", ",label=colour")),
                "has no column 'colour'; it has width, length, garden, species");
  ExpectRefused(with_data("csv"), "csv:FILE");
  ExpectRefused(with_data("cvs:a"), "is none of");
  ExpectRefused(with_data("iris.csv"), "; a file is csv:iris.csv");
  ExpectRefused({"train", "--model", "net.json"}, "; a file is json:net.json");
  ExpectRefused({"train", "--data", absl::StrCat("csv:", dir_ / "flowers.csv")},
                "model lenet for samples of 4: layer conv1, op 0 (conv): needs a spatial input; "
                "models that take them: mlp");
  ExpectRefused({"show", absl::StrCat("json:", dir_.path())}, "is a folder, no file");
  ExpectRefused({"replay", "--journal", dir_.path()}, "is a folder, no file");
  Write(dir_ / "bad.csv", "a,species\n1,rose\n2,\n");
  ExpectRefused(with_data(absl::StrCat("csv:", dir_ / "bad.csv")), "bad.csv: line 3: the class");
}

}  // namespace
}  // namespace runnel::own_data_test
