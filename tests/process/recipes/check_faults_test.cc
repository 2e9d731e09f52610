// `runnel-worker --check` on machines whose OpenCL is broken in one way each: the line names the
// fault and what helps. Skipped without a driver.

#include <cstdlib>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/process/central_runs.h"

namespace runnel::check_faults_test {
namespace {

using ::testing::Contains;
using ::testing::ContainsRegex;

struct Fault {
  std::string name;
  Words options;
  const char* variable;  // of tests/kernels/opencl/opencl_faults.h; null: none
  const char* value;
  std::string line;
};

std::vector<Fault> Faults() {
  const auto library = [](const char* name) {
    return Words{"--backend-option", std::string("opencl.library=") + name};
  };
  return {
      {"NoLibrary", library("/nowhere/libOpenCL.so"), nullptr, nullptr,
       "/nowhere/libOpenCL.so .cannot open shared object file.*; install one "
       ".*opencl.library=PATH"},
      {"NoSymbol", library("libm.so.6"), nullptr, nullptr,
       "libm.so.6 .has no clGetPlatformIDs.; install one .*opencl.library=PATH"},
      {"WrongArithmetic",
       {},
       "RUNNEL_TEST_OPENCL_NOTHING",
       "1",
       "computes integers wrong: .*; install another version of its driver"},
      {"NoMemory",
       {},
       "RUNNEL_TEST_OPENCL_BUFFERS",
       "2",
       "no room for [0-9]+ bytes .*; end what uses its memory, or raise --device-memory-mb"},
      {"OldDriver",
       {},
       "RUNNEL_TEST_OPENCL_LANGUAGE",
       "OpenCL C 1.1 old",
       "takes OpenCL C 1.1 old, needs 1.2; install a newer driver"},
  };
}

class CheckFaultsTest : public testing::TestWithParam<Fault> {};

TEST_P(CheckFaultsTest, IsNamedWithItsRemedy) {
  if (!testing::Matches(Contains("opencl"))(BackendNames())) GTEST_SKIP() << "no OpenCL driver";
  const Fault& fault = GetParam();
  Process check(With({"runnel-worker", "--check", "--state-dir", ""}, fault.options), [&fault] {
    if (fault.variable == nullptr) return;
    setenv("LD_PRELOAD", RUNNEL_OPENCL_FAULTS, 1);
    setenv(fault.variable, fault.value, 1);
  });
  EXPECT_EQ(check.Wait(), 0) << check.err();
  EXPECT_THAT(check.out(), ContainsRegex("opencl +no +[^\n]*" + fault.line));
}

INSTANTIATE_TEST_SUITE_P(Faults, CheckFaultsTest, testing::ValuesIn(Faults()),
                         [](const auto& row) { return row.param.name; });

}  // namespace
}  // namespace runnel::check_faults_test
