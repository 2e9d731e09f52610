// Tunings are kept for the same device, driver and kernels; of others they are hints; bytes that
// are not those that were written are one clear line.

#include "worker/tune/tuning_store.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/process/atomic_file.h"
#include "tests/support/scratch.h"

namespace runnel::tuning_store_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const TuningSubject kGpu = {"opencl", "Platform", "Some GPU (Platform)", "1.0", "00ff"};

TuningChoice Choice(const std::string& kernel) {
  return {"int8 product_forward point rows 2^4", kernel, 0.125, 0.25, 7};
}

class TuningStoreTest : public ::testing::Test {
 protected:
  std::string File() const { return store_.PathFor(kGpu); }
  std::string Text() const { return ReadWholeFile(File(), 1 << 20).value(); }
  void Write(const std::string& text) const { std::ofstream(File()) << text; }
  // With another value of one field.
  static TuningSubject Other(std::string TuningSubject::*field) {
    TuningSubject other = kGpu;
    other.*field += " other";
    return other;
  }

  ScratchDir dir_;
  const TuningStore store_{dir_ / "state"};
};

TEST_F(TuningStoreTest, KeepsWhatItIsGiven) {
  EXPECT_THAT(store_.Find(kGpu).same, IsEmpty());
  ASSERT_TRUE(store_.Keep(kGpu, {Choice("a"), Choice("b")}).ok());
  const KeptTunings kept = TuningStore(dir_ / "state").Find(kGpu);
  EXPECT_THAT(kept.same, ElementsAre(Choice("a"), Choice("b")));
  EXPECT_THAT(kept.family, IsEmpty());
  EXPECT_THAT(kept.complaints, IsEmpty());
  ASSERT_TRUE(store_.Keep(kGpu, {Choice("c")}).ok());
  EXPECT_THAT(store_.Find(kGpu).same, ElementsAre(Choice("c")));
}

TEST_F(TuningStoreTest, OfOtherDriversKernelsAndRelativesTheyAreHints) {
  ASSERT_TRUE(store_.Keep(Other(&TuningSubject::device), {Choice("relative")}).ok());
  ASSERT_TRUE(store_.Keep(Other(&TuningSubject::driver), {Choice("driver")}).ok());
  ASSERT_TRUE(store_.Keep(Other(&TuningSubject::kernels), {Choice("kernels")}).ok());
  TuningSubject stranger = Other(&TuningSubject::family);
  stranger.device += " of another maker";
  ASSERT_TRUE(store_.Keep(stranger, {Choice("stranger")}).ok());
  const KeptTunings kept = store_.Find(kGpu);
  EXPECT_THAT(kept.same, IsEmpty());
  ASSERT_EQ(kept.family.size(), 3u);
  EXPECT_EQ(kept.family[2], Choice("relative")) << "the device's own come first";
  EXPECT_THAT(kept.complaints, IsEmpty());
}

// Each bit, each length.
TEST_F(TuningStoreTest, DamagedFilesAreOneLineAndCountAsAbsent) {
  ASSERT_TRUE(store_.Keep(kGpu, {Choice("a")}).ok());
  const std::string right = Text();
  const auto expect_refused = [&](const std::string& text) {
    Write(text);
    const KeptTunings kept = store_.Find(kGpu);
    EXPECT_THAT(kept.same, IsEmpty()) << text;
    EXPECT_THAT(kept.family, IsEmpty()) << text;
    EXPECT_THAT(kept.complaints,
                ElementsAre(AllOf(HasSubstr(File()), HasSubstr("`runnel-worker tune`"))));
  };
  for (size_t i = 0; i < right.size(); ++i) {
    std::string text = right;
    text[i] = static_cast<char>(text[i] ^ 1 << i % 8);
    expect_refused(text);
    expect_refused(right.substr(0, i));
  }
  expect_refused(right + "x");
  Write(right);
  EXPECT_THAT(store_.Find(kGpu).same, ElementsAre(Choice("a")));
}

TEST_F(TuningStoreTest, WithoutAFolderNothingIsKept) {
  const TuningStore nowhere("");
  EXPECT_TRUE(nowhere.Keep(kGpu, {Choice("a")}).ok());
  EXPECT_THAT(nowhere.Find(kGpu).same, IsEmpty());
  EXPECT_EQ(nowhere.PathFor(kGpu), "");
}

}  // namespace
}  // namespace runnel::tuning_store_test
