// TensorBoard's event files (tensorflow/core/lib/io/record_writer.h): of each record its length as a
// 64-bit little-endian integer, a checksum of that, the bytes of an Event, a checksum of those.

#include <chrono>

#include "absl/types/span.h"
#include "central/records/log_forms.h"
#include "proto/event_file.pb.h"

namespace runnel {
namespace {

constexpr size_t kLengthBytes = 8, kSumBytes = 4;
constexpr uint64_t kMaxEventBytes = 1 << 20;

void AppendNumber(uint64_t value, size_t bytes, std::string& out) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<char>(value >> 8 * i));
}

uint64_t NumberAt(absl::string_view text, size_t bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes; ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(text[i])) << 8 * i;
  return value;
}

// CRC-32C (Castagnoli), rotated and moved as the format wants it. A row a barrier needs no table.
uint32_t ChecksumOf(absl::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::string Framed(const proto::Event& event) {
  const std::string bytes = event.SerializeAsString();
  std::string record;
  AppendNumber(bytes.size(), kLengthBytes, record);
  AppendNumber(ChecksumOf(record), kSumBytes, record);
  record += bytes;
  AppendNumber(ChecksumOf(bytes), kSumBytes, record);
  return record;
}

proto::Event NewEvent() {
  proto::Event event;
  using Seconds = std::chrono::duration<double>;
  event.set_wall_time(Seconds(std::chrono::system_clock::now().time_since_epoch()).count());
  return event;
}

}  // namespace

std::string EventFileHead() {
  proto::Event event = NewEvent();
  event.set_file_version("brain.Event:2");
  return Framed(event);
}

std::string EventRecord(const LogRow& row) {
  proto::Event event = NewEvent();
  event.set_step(row.step);
  for (const LogColumn& column : LogColumns().subspan(1)) {  // behind the step
    const std::optional<double> value = column.value(row);
    if (!value.has_value()) continue;
    proto::EventValue& cell = *event.mutable_summary()->add_value();
    cell.set_tag(column.name);
    cell.set_simple_value(static_cast<float>(*value));
  }
  return Framed(event);
}

absl::StatusOr<LogRecord> NextEvent(absl::string_view rest) {
  if (rest.size() < kLengthBytes + kSumBytes) return LogRecord{};
  const absl::string_view length = rest.substr(0, kLengthBytes);
  const uint64_t bytes = NumberAt(length, kLengthBytes);
  const auto sum_at = [&](size_t at) { return NumberAt(rest.substr(at), kSumBytes); };
  if (ChecksumOf(length) != sum_at(kLengthBytes) || bytes > kMaxEventBytes)
    return absl::DataLossError("is no record");
  const size_t begin = kLengthBytes + kSumBytes, end = begin + bytes;
  if (rest.size() < end + kSumBytes) return LogRecord{};
  const absl::string_view text = rest.substr(begin, bytes);
  proto::Event event;
  if (ChecksumOf(text) != sum_at(end) ||
      !event.ParseFromArray(text.data(), static_cast<int>(bytes)))
    return absl::DataLossError("is no record");
  LogRecord record = {.bytes = end + kSumBytes};
  if (!event.file_version().empty()) return record;
  record.place = LogPlace{.step = static_cast<double>(event.step())};
  for (const proto::EventValue& cell : event.summary().value())
    if (cell.tag() == "seconds") record.place->seconds = cell.simple_value();
  return record;
}

}  // namespace runnel
