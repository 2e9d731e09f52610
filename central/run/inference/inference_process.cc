#include "central/run/inference/inference_process.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "central/run/workers/worker_process.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"

namespace runnel {
namespace {

constexpr int64_t kPollMs = 60'000;

// A file without a name, which a child can open while this process has it.
class MemoryFile {
 public:
  static absl::StatusOr<MemoryFile> Create() {
    const int fd = memfd_create("runnel-inference", MFD_CLOEXEC);
    if (fd < 0) return FileError("make", "a file in memory", errno);
    return MemoryFile(fd);
  }
  MemoryFile(MemoryFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~MemoryFile() {
    if (fd_ >= 0) close(fd_);
  }

  int fd() const { return fd_; }
  std::string path() const { return absl::StrCat("/proc/", getpid(), "/fd/", fd_); }

 private:
  explicit MemoryFile(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace

absl::StatusOr<InferenceReply> RunInferenceProcess(const std::string& job,
                                                   const LocalWorkerOptions& options) {
  RUNNEL_ASSIGN_OR_RETURN(const MemoryFile job_file, MemoryFile::Create());
  RUNNEL_ASSIGN_OR_RETURN(const MemoryFile reply_file, MemoryFile::Create());
  RUNNEL_RETURN_IF_ERROR(WriteAll(job_file.fd(), job, "a job of inference"));
  WorkerCommand command;
  RUNNEL_ASSIGN_OR_RETURN(command.binary, FindWorkerBinary());
  command.arguments = {"infer",
                       "--job",
                       job_file.path(),
                       "--reply",
                       reply_file.path(),
                       "--threads",
                       absl::StrCat(options.threads)};
  if (!options.backend_options.empty()) {
    command.arguments.insert(command.arguments.end(),
                             {"--backend-option", options.backend_options.text()});
  }
  command.threads = options.threads;
  command.log_level = "warn";
  RUNNEL_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerProcess> process,
                          WorkerProcess::Start(command));
  std::optional<ProcessExit> end;
  while (!end.has_value()) end = process->Wait(kPollMs);
  if (!end->ok()) {
    return absl::InternalError(
        absl::StrCat("runnel-worker infer ended with ", end->ToString(), ", without an answer"));
  }
  RUNNEL_ASSIGN_OR_RETURN(const std::string reply,
                          ReadWholeFile(reply_file.path(), kMaxQuantizedBytes));
  return ReadInferenceReply(reply);
}

}  // namespace runnel
