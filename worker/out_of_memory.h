#pragma once

// Work that finds no memory ends with a status, not with the process: central hears the reason, not
// a connection that broke.

#include <new>
#include <system_error>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace runnel {

// The result of `work`, a Status or a StatusOr. ResourceExhausted if it found no memory, or no
// thread for a lane; doing: a description of the work, for people. Any thread.
template <typename Work>
std::invoke_result_t<Work&> WithinMemory(absl::string_view doing, Work&& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat("out of memory while ", doing));
  } catch (const std::system_error& error) {  // a thread that could not start
    return absl::ResourceExhaustedError(absl::StrCat(error.what(), " while ", doing));
  }
}

}  // namespace runnel
