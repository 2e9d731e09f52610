#include "proto/base/plan/program_listing.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::program_listing_test {
namespace {

using ::testing::HasSubstr;

// Two input-gradients on the host; a weight-gradient begins on a DSP after the first of them and
// ends 2 ms after the second.
ProgramListing Listing() {
  ProgramListing listing;
  listing.last_layer = 1;
  listing.samples = 4;
  listing.processors = {"cpu (counted)", "hexagon (counted)"};
  const auto line = [](const char* part, int layer, const char* instruction, const char* processor,
                       double seconds, double begin_seconds) {
    ProgramLine one;
    one.part = part;
    one.layer = layer;
    one.instruction = instruction;
    one.processor = processor;
    one.seconds = seconds;
    one.begin_seconds = begin_seconds;
    return one;
  };
  listing.lines = {line("input_gradient", 1, "conv_input_gradient", "cpu", 10e-3, 0),
                   line("input_gradient", 0, "conv_input_gradient", "cpu", 5e-3, 10e-3),
                   line("weight_gradient", 1, "conv_weight_gradient", "hexagon", 6e-3, -5e-3),
                   line("weight_gradient", 0, "conv_weight_gradient", "cpu", 3e-3, 0)};
  listing.lines[2].switches = true;
  listing.lines[2].switch_seconds = 1e-3;
  return listing;
}

TEST(ProgramListing, WhatRunsBesideAnotherPartTakesNoTimeOfItsOwn) {
  const ProgramListing listing = Listing();
  EXPECT_DOUBLE_EQ(SecondsOf(listing, "input_gradient"), 15e-3);
  EXPECT_DOUBLE_EQ(SecondsOf(listing, "weight_gradient"), 3e-3);
  EXPECT_DOUBLE_EQ(WorkSecondsOf(listing, "weight_gradient"), 10e-3);
  EXPECT_DOUBLE_EQ(SecondsOf(listing, ""), 18e-3);
  // One that ends before the input-gradient does.
  ProgramListing early = listing;
  early.lines.pop_back();
  early.lines[2].seconds = 1e-3;
  EXPECT_EQ(SecondsOf(early, "weight_gradient"), 0);
}

TEST(ProgramListing, SaysWhatRunsBesideWhat) {
  const std::string text = ToText(Listing());
  EXPECT_THAT(text, HasSubstr("begins ms"));
  EXPECT_THAT(text, testing::ContainsRegex(
                        "weight_gradient +1.0 +conv_weight_gradient +hexagon +-5.000 +6.000 +1.000 "
                        "+0 +cpu 0.0\n"));
  EXPECT_THAT(text,
              testing::ContainsRegex(
                  "input_gradient +0.0 +conv_input_gradient +cpu +10.000 +5.000 +hexagon 1.0\n"));
  EXPECT_THAT(text, testing::ContainsRegex("input_gradient +1.0 +conv_input_gradient +cpu +0.000 "
                                           "+10.000\n"));
  EXPECT_THAT(text, HasSubstr("weight_gradient: 3.000 ms (7.000 more beside others), 1 switches, "
                              "1 on hexagon, 1 on cpu\n"));
  EXPECT_THAT(text, HasSubstr("input_gradient: 15.000 ms, 0 switches, 2 on cpu\n"));
}

}  // namespace
}  // namespace runnel::program_listing_test
