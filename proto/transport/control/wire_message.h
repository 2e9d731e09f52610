#pragma once

// Fields of messages by their descriptors: where one stands, what it holds, and whether that is
// within the limits that its .proto file gives (proto/limit.proto).

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/message.h"

namespace runnel {

// Where a field stands, for error messages: "plan.stages[1].cap". A chain on the stack: `above`
// outlives it.
struct FieldPath {
  absl::string_view name;
  const FieldPath* above = nullptr;
  int index = -1;  // of an entry of a list

  std::string text() const;
  // The error with the path before it.
  absl::Status Named(const absl::Status& status) const;
};

// OK, or InvalidArgument that names the first field that breaks its limit. Messages within are
// checked too where they are there; those of kind APART are not.
absl::Status CheckMessage(const google::protobuf::Message& message, const FieldPath& path);

// One value of a message: of a field, or an entry of a list (index >= 0).
struct WireValue {
  google::protobuf::Message* message;
  const google::protobuf::FieldDescriptor* field;
  int index = -1;

  // Integers of all sizes, and booleans as 0 and 1.
  int64_t integer() const;
  double real() const;
  // Takes the text out of the message. A reason comes as one line.
  std::string TakeText() const;
  google::protobuf::Message& child() const;
};

// Sets a field, or adds an entry to a list.
void PutInteger(const WireValue& to, int64_t value);
void PutReal(const WireValue& to, double value);
// Well-formed UTF-8, and not longer than its limit where that cuts. Bytes go as they are.
void PutText(const WireValue& to, std::string value);
google::protobuf::Message& PutChild(const WireValue& to);

// The message's field of this name, which it has: else the program is wrong and ends.
const google::protobuf::FieldDescriptor* FieldNamed(const google::protobuf::Message& message,
                                                    const char* name);

}  // namespace runnel
