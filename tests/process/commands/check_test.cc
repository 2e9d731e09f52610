// `runnel-worker --check`: what of this device can compute, and why the rest cannot; always exit
// code 0. `runnel-central check MODEL`: which of them can train a model.

#include <stdlib.h>

#include <algorithm>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backends/backend.h"
#include "tests/process/process.h"

namespace runnel::check_test {
namespace {

using ::testing::Contains;
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

// Each backend is said once: able, or why not.
void ExpectEachOnce(const std::string& report, const std::string& recipe,
                    const std::vector<std::string>& able) {
  const std::string begin = "backends of this host that can train it by recipe " + recipe + ": ";
  const size_t at = report.find(begin);
  ASSERT_NE(at, std::string::npos) << report;
  const std::string line =
      report.substr(at + begin.size(), report.find('\n', at) - at - begin.size());
  const std::vector<std::string> said = absl::StrSplit(line, ", ");
  for (const std::string& name : able) EXPECT_THAT(said, Contains(name)) << report;
  for (const BackendRow& row : BuiltinBackends()) {
    const std::string name(row.name);
    const bool is_able = std::count(said.begin(), said.end(), name) == 1;
    const bool is_not = report.find("\nnot by backend " + name + ": ", at) != std::string::npos;
    EXPECT_NE(is_able, is_not) << name << "\n" << report;
  }
}

TEST(CheckModel, SaysWhichBackendsCanTrainIt) {
  const auto check = [](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"runnel-central", "check"};
    all.insert(all.end(), words.begin(), words.end());
    // No driver of OpenCL, no emulator of a DSP.
    Process process(all, [] {
      setenv("OCL_ICD_VENDORS", "/nowhere", 1);
      setenv("PATH", "/nowhere", 1);
    });
    EXPECT_EQ(process.Wait(), 0) << process.err();
    return process.out();
  };
  const std::string floats = check({"lenet"});
  ExpectEachOnce(floats, "fp32", {"cpu", "small", "ref"});
  EXPECT_THAT(floats, ContainsRegex("not by backend hexagon: .+"));
  EXPECT_THAT(floats, ContainsRegex("not by backend opencl: .+"));
  const std::string integers = check({"lenet", "--recipe", "niti"});
  ExpectEachOnce(integers, "niti", {"cpu", "ref"});
  EXPECT_THAT(integers, ContainsRegex("not by backend small: .+"));
  ExpectEachOnce(check({"transformer_tiny"}), "fp32", {"cpu", "ref"});
}

}  // namespace
}  // namespace runnel::check_test
