#pragma once

// Files that are there whole or not at all.

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel {

// A status that names path and cause ("write /x/y: No space left on device"): NotFound for ENOENT,
// PermissionDenied, ResourceExhausted for a full disk, quota or file size limit, AlreadyExists,
// InvalidArgument for a wrong kind of path, else Internal.
absl::Status FileError(absl::string_view action, absl::string_view path, int error_number);

// write(2) until all of `bytes` are out or an error: FileError.
absl::Status WriteAll(int fd, absl::string_view bytes, absl::string_view path);

// The file's whole content; at most max_bytes (InvalidArgument beyond; nothing is allocated then).
// Directories and the like are InvalidArgument too.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, int64_t max_bytes);

// What a folder lists is on the disk: a file that was made there is found after a crash.
absl::Status FlushFolderOf(const std::string& path);

// Whether WriteFileAtomically(path) can begin: its temporary file can be made now. Nothing stays.
// Errors as it.
absl::Status CheckCanWrite(const std::string& path);

// Writes the pieces, one behind the other, to <path>.tmp (a new file: what somebody put there is
// removed, not followed), flushes it to the disk, renames it to
// `path` and flushes the directory: after a crash `path` has the old content or the new. On any
// error the temporary file is gone, `path` is as it was (unless it is the directory's flush that
// fails: then the new content is there), and the status names path and cause. A
// symbolic link is followed; something that is there and no regular file (/dev/null, a pipe) is
// written to as it is. One writer per path at a time.
absl::Status WriteFileAtomically(const std::string& path,
                                 absl::Span<const absl::string_view> pieces);

}  // namespace runnel
