// People with their own network and data: a table, arrays and pictures train on real workers, and
// what is wrong with them is one line.

#include <png.h>

#include <cmath>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/process/central_runs.h"

namespace runnel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
  Process replay({"runnel-central", "replay", "--journal", dir_ / "j"});
  EXPECT_EQ(replay.Wait(), 0) << replay.err();
  Process eval({"runnel-central", "eval", "--checkpoint-dir", dir_ / "c", "--summary", dir_ / "e"});
  EXPECT_EQ(eval.Wait(), 0) << eval.err();
  EXPECT_EQ(Summary(dir_ / "e")["accuracy"], whole["accuracy"]);
  EXPECT_GT(RunCentral(With(table_, {"--local-workers", "2", "--recipe", "niti"}))["accuracy"],
            0.9);
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
  // One step of nothing.
  const Words still = {"--max-batches", "1", "--lr", "1e-12", "--warm-up-steps", "0"};
  Words onnx = With(With(table_, still), {"--local-workers", "3", "--journal", dir_ / "j"});
  onnx[2] = absl::StrCat("onnx:", dir_ / "m.onnx");
  EXPECT_EQ(RunCentral(onnx)["accuracy"], trained["accuracy"]);
  Process replay({"runnel-central", "replay", "--journal", dir_ / "j"});
  EXPECT_EQ(replay.Wait(), 0) << replay.err();
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
  ExpectRefused({"train", "--model", "lenet", "--data", absl::StrCat("csv:", dir_ / "flowers.csv")},
                "model lenet for samples of 4: layer conv1");
  Write(dir_ / "bad.csv", "a,species\n1,rose\n2,\n");
  ExpectRefused(with_data(absl::StrCat("csv:", dir_ / "bad.csv")), "bad.csv: line 3: the class");
}

}  // namespace
}  // namespace runnel
