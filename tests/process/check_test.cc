// `runnel-worker --check`: what of this device can compute, and why the rest cannot; always exit
// code 0.

#include <stdlib.h>

#include <algorithm>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/process/process.h"

namespace runnel::check_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Of each backend one line.
void ExpectLines(const std::string& report) {
  EXPECT_EQ(static_cast<size_t>(std::count(report.begin(), report.end(), '\n')),
            1 + BuiltinBackends().size())
      << report;
  EXPECT_THAT(report, ContainsRegex("cpu +yes +.*dot product .*; own kernels, instruction set "));
  EXPECT_THAT(report, ContainsRegex("ref +yes +.*; plain loops"));
}

TEST(Check, SaysWhatIsThere) {
  Process check({"runnel-worker", "--check", "--threads", "2"});
  EXPECT_EQ(check.Wait(), 0) << check.err();
  ExpectLines(check.out());
  EXPECT_THAT(check.out(), HasSubstr(", 2 threads\n"));
  for (const std::string& name : BackendNames())
    EXPECT_THAT(check.out(), ContainsRegex("\n" + name + " +yes "));
}

// No driver of OpenCL, no emulator of a DSP.
TEST(Check, SaysWhyWhatIsNotThereIsNot) {
  Process check({"runnel-worker", "--check"}, [] {
    setenv("OCL_ICD_VENDORS", "/nowhere", 1);
    setenv("PATH", "/nowhere", 1);
  });
  EXPECT_EQ(check.Wait(), 0) << check.err();
  ExpectLines(check.out());
  EXPECT_THAT(check.out(), ContainsRegex("opencl +no +no OpenCL here: "));
  EXPECT_THAT(check.out(), ContainsRegex("hexagon +no +no DSP here: "));
  EXPECT_THAT(check.out(), Not(HasSubstr("take --backend")));
}

}  // namespace
}  // namespace runnel::check_test
