// What a worker says of its processors is believed only as far as it may go.

#include "proto/transport/control/processor_convert.h"

#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::processor_convert_test {
namespace {

using ::testing::HasSubstr;

TEST(ProcessorConvert, WhatIsSaidArrives) {
  const std::vector<ProcessorFacts> list = {
      {.backend = "cpu", .state = ProcessorState::kReady, .note = "own kernels"},
      {"opencl", ProcessorState::kChecked, "GPU", "1.2", 4, int64_t{1} << 40, "khr", true, "n"}};
  const auto back = FromProto("list", ToProto(list));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, list);
  EXPECT_TRUE(FromProto("list", proto::ProcessorList())->empty());
}

TEST(ProcessorConvert, BadFieldsAreNamed) {
  const struct {
    std::function<void(proto::Processor&)> spoil;
    const char* named;
  } rows[] = {
      {[](auto& one) { one.set_backend(""); }, "list.processors[1].backend"},
      {[](auto& one) { one.set_backend(std::string(257, 'x')); }, "list.processors[1].backend"},
      {[](auto& one) { one.set_state(kProcessorStateCount); }, "list.processors[1].state"},
      {[](auto& one) { one.set_device(std::string(257, 'x')); }, "list.processors[1].device"},
      {[](auto& one) { one.set_driver("a\nb"); }, "list.processors[1].driver"},
      {[](auto& one) { one.set_compute_units(-1); }, "list.processors[1].compute_units"},
      {[](auto& one) { one.set_memory_bytes(std::numeric_limits<int64_t>::max()); },
       "list.processors[1].memory_bytes"},
      {[](auto& one) { one.set_memory_bytes(-1); }, "list.processors[1].memory_bytes"},
      {[](auto& one) { one.set_dot_product(std::string(257, 'x')); },
       "list.processors[1].dot_product"},
      {[](auto& one) { one.set_note("\x1b[2J"); }, "list.processors[1].note"}};
  for (const auto& row : rows) {
    proto::ProcessorList list = ToProto({{.backend = "cpu"}, {.backend = "opencl"}});
    row.spoil(*list.mutable_processors(1));
    const absl::Status status = FromProto("list", list).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << row.named;
    EXPECT_THAT(std::string(status.message()), HasSubstr(row.named));
  }
}

TEST(ProcessorConvert, AListIsBounded) {
  std::vector<ProcessorFacts> list(kMaxProcessorFacts, {.backend = "cpu"});
  EXPECT_TRUE(FromProto("list", ToProto(list)).ok());
  list.push_back({.backend = "cpu"});
  EXPECT_THAT(std::string(FromProto("list", ToProto(list)).status().message()), HasSubstr("list"));
}

}  // namespace
}  // namespace runnel::processor_convert_test
