#pragma once

// Whether a text can stand in JSON and in messages, both of which are UTF-8.

#include "absl/strings/string_view.h"

namespace runnel {

// No overlong form, no surrogate, nothing above U+10FFFF. Any thread.
bool IsUtf8(absl::string_view text);

}  // namespace runnel
