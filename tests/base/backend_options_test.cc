// The table of backend options: what is written is read again, and what it does not have is refused
// in a line that names what there is.

#include "proto/base/backend_options.h"

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::backend_options_test {
namespace {

using ::testing::HasSubstr;

TEST(BackendOptions, TextIsReadAgain) {
  const auto options =
      BackendOptions::Parse(" opencl.weights=fp16;hexagon.stall_s=2.5; opencl.tile=4x1 by 8, a=b ");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->Get("opencl", "weights"), "fp16");
  EXPECT_EQ(options->Get("opencl", "tile"), "4x1 by 8, a=b");
  EXPECT_EQ(options->Get("opencl", "dot"), "");
  EXPECT_EQ(options->Seconds("hexagon", "stall_s", 150), 2.5);
  EXPECT_EQ(options->Seconds("opencl", "tune_s", 2), 2);
  EXPECT_EQ(options->text(), "hexagon.stall_s=2.5; opencl.tile=4x1 by 8, a=b; opencl.weights=fp16");
  EXPECT_EQ(*BackendOptions::Parse(options->text()), *options);
  EXPECT_TRUE(BackendOptions::Parse("")->empty());
}

TEST(BackendOptions, EveryRowTakesItsValuesAndNoOther) {
  for (const BackendOptionRow& row : BackendOptionRows()) {
    const std::string name = std::string(row.backend) + "." + std::string(row.name);
    const bool is_text = row.values == "TEXT",
               is_number = row.values == "SECONDS" || row.values == "PICOJOULES";
    const std::string good =
        is_text || is_number ? "7" : std::string(row.values.substr(0, row.values.find('|')));
    EXPECT_TRUE(BackendOptions::Parse(name + "=" + good).ok()) << name;
    EXPECT_FALSE(BackendOptions::Parse(name + "=").ok()) << name;
    EXPECT_EQ(BackendOptions::Parse(name + "=abacus").ok(), is_text) << name;
    EXPECT_EQ(BackendOptions::Parse(name + "=-1").ok(), is_text) << name;
    EXPECT_THAT(BackendOptionsHelp(), HasSubstr(name + "="));
  }
}

TEST(BackendOptions, WhatThereIsNotIsNamed) {
  const auto error = [](const char* text) {
    return std::string(BackendOptions::Parse(text).status().message());
  };
  EXPECT_EQ(
      error("opencl.colour=red"),
      "backend opencl has no option colour: it has device, dot, host, library, mac_pj, memory, "
      "tile, weights, activations, programs, stall_s, tune_s");
  EXPECT_THAT(error("ref.threads=2"), HasSubstr("there are some of cpu, hexagon, opencl"));
  EXPECT_THAT(error("opencl"), HasSubstr("is not BACKEND.NAME=VALUE"));
  EXPECT_THAT(error("a=b.c"), HasSubstr("is not BACKEND.NAME=VALUE"));
  EXPECT_EQ(error("hexagon.stall_s=0"), "hexagon.stall_s '0': must be seconds, at least 1");
  EXPECT_EQ(error("hexagon.mac_pj=0"), "hexagon.mac_pj '0': must be picojoules, at least 0.001");
  EXPECT_EQ(error("opencl.dot=arm;opencl.dot=arm"), "opencl.dot is given twice");
  for (const char* nan : {"nan", "inf", "1e99"})
    EXPECT_FALSE(BackendOptions::Parse(std::string("opencl.tune_s=") + nan).ok()) << nan;
}

}  // namespace
}  // namespace runnel::backend_options_test
