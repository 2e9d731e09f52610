// What is said of processors, and how long it may be.

#include "proto/base/plan/processor_facts.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/plan/program_listing.h"

namespace runnel::processor_facts_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ProcessorFacts, ALineSaysWhatIsKnown) {
  ProcessorFacts facts = {.backend = "opencl",
                          .state = ProcessorState::kChecked,
                          .device = "GPU (Maker)",
                          .driver = "1.2",
                          .compute_units = 4,
                          .memory_bytes = 64 << 20,
                          .dot_product = "khr",
                          .note = "OpenCL C 3.0"};
  EXPECT_EQ(ToText(facts),
            "GPU (Maker), driver 1.2, 4 compute units, 64 MiB for stages, dot product khr; "
            "integers as ref computes them; OpenCL C 3.0");
  EXPECT_EQ(UsableText(facts.state), "yes");
  facts.is_emulated = true;
  EXPECT_THAT(ToText(facts), HasSubstr("emulated: its times are no processor's"));
  EXPECT_EQ(ToText({.backend = "opencl", .state = ProcessorState::kRefused, .note = "no driver"}),
            "no driver");
  const ProcessorFacts unopened = {.backend = "opencl"};
  EXPECT_EQ(UsableText(unopened.state), "not opened");
  EXPECT_EQ(ToText(unopened), "installed, its driver was not loaded");
}

// Five of them have to fit a first message of 4 KiB, with all else that is in it.
TEST(ProcessorFacts, LongTextsAreCutBetweenCharacters) {
  std::string text;
  while (text.size() < 1000) text += "\xE2\x82\xAC";
  const ProcessorFacts cut = Shortened(
      {.backend = text, .device = text, .driver = text, .dot_product = text, .note = text});
  size_t bytes = 0;
  for (const std::string& one : {cut.backend, cut.device, cut.driver, cut.dot_product, cut.note}) {
    EXPECT_EQ(one.size() % 3, 0u) << "half a character";
    EXPECT_GE(one.size(), 30u);
    bytes += one.size();
  }
  EXPECT_LE(5 * bytes, 2048u);
  const ProcessorFacts as_it_is = {.backend = "cpu", .note = "short"};
  EXPECT_EQ(Shortened(as_it_is), as_it_is);
}

TEST(ProcessorFacts, AreFoundByBackend) {
  const std::vector<ProcessorFacts> list = {{.backend = "cpu"}, {.backend = "opencl"}};
  EXPECT_EQ(FindProcessor(list, "opencl"), &list[1]);
  EXPECT_EQ(FindProcessor(list, "hexagon"), nullptr);
}

TEST(ProgramListing, ASummarySaysWhoHasWhat) {
  ProgramListing listing;
  listing.processors = {"cpu (measured)", "opencl (measured)"};
  listing.lines = {{"forward", 0, 0, "a", "cpu", 0.001},
                   {"forward", 1, 0, "b", "opencl", 0.002, true, 0.0005, 64},
                   {"forward", 0, 0, "", "cpu", 0, true, 0.0005, 64}};
  EXPECT_EQ(SummaryOf(listing),
            "1 instructions on cpu (measured), 1.000 ms; 1 instructions on opencl (measured), "
            "2.000 ms; 2 switches, 1.000 ms");
  listing.lines.resize(1);
  EXPECT_THAT(SummaryOf(listing), HasSubstr("; opencl gets nothing: "));
  EXPECT_THAT(SummaryOf(listing), Not(HasSubstr("0 instructions")));
}

}  // namespace
}  // namespace runnel::processor_facts_test
