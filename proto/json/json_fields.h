#pragma once

// Typed access to the fields of a JSON object from outside: errors are statuses that name the key.
// And the form of files that people read. Pure functions, any thread.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "proto/base/training/codecs/codec_schedule.h"

namespace runnel {

// Keys in the order in which they were set.
using Json = nlohmann::ordered_json;

// InvalidArgument says where the text breaks. Nesting is limited.
absl::StatusOr<Json> ParseJson(absl::string_view text);

// The JSON as one line without a line end. Bytes that are no UTF-8 become U+FFFD; NaN and
// infinities null.
std::string DumpJson(const Json& json);
// An object for people: each field of `head` in a line, then the array `rows` as the field `key`,
// an element a line.
std::string DumpRows(const Json& head, absl::string_view key, const std::vector<Json>& rows);
// The number that is written with at most so many significant digits. A float's 9 give the float
// back.
double Rounded(double value, int digits);

// Conversions of one value; `key` goes into the message. An integer must be written as one and fit
// 64 bits; a real may be written as an integer.
absl::Status ReadValue(const Json& json, absl::string_view key, int64_t& out);
absl::Status ReadValue(const Json& json, absl::string_view key, uint64_t& out);
absl::Status ReadValue(const Json& json, absl::string_view key, int32_t& out);
absl::Status ReadValue(const Json& json, absl::string_view key, double& out);
absl::Status ReadValue(const Json& json, absl::string_view key, bool& out);
absl::Status ReadValue(const Json& json, absl::string_view key, std::string& out);
// Reads a codec schedule from its text.
absl::Status ReadValue(const Json& json, absl::string_view key, CodecSchedule& out);
absl::Status ReadValue(const Json& json, absl::string_view key, std::vector<int64_t>& out);
absl::Status ReadValue(const Json& json, absl::string_view key, std::vector<double>& out);
absl::Status ReadValue(const Json& json, absl::string_view key, std::vector<float>& out);
// null is NaN: what DumpJson makes of one.
absl::Status ReadMeasurement(const Json& json, absl::string_view key, double& out);

// Reads an object's fields one after the other and keeps the first error. Borrows the JSON.
class JsonObject {
 public:
  // what: "plan", for messages.
  JsonObject(const Json& json, absl::string_view what);

  // A field that must be there.
  template <typename T>
  JsonObject& Read(absl::string_view key, T& out) {
    if (const Json* value = Find(key)) Note(ReadValue(*value, key, out));
    return *this;
  }
  JsonObject& Measurement(absl::string_view key, double& out);
  // The fields "format" and "version", with which a file begins.
  JsonObject& Format(absl::string_view format, int64_t version);
  // The field itself; null after the first error.
  const Json* Find(absl::string_view key);
  // The first field that nobody has asked for; empty: there is none.
  std::string NextKey() const;
  // The elements of a field that must be an array; empty after the first error.
  const Json& Array(absl::string_view key);
  // Keeps the first error.
  void Note(absl::Status status);
  // OK if all was right and the object has no other keys.
  absl::Status Finish() const;

 private:
  const Json& json_;
  std::string what_;
  std::set<std::string> known_;
  absl::Status status_;
};

}  // namespace runnel
