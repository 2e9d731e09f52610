#include "central/records/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/process/atomic_file.h"
#include "proto/process/file_lock.h"

namespace runnel {
namespace {

// A line a barrier is some hundred bytes: this is years.
constexpr int64_t kMaxJournalBytes = int64_t{1} << 30;

// What must hold from one record to the next.
class OrderCheck {
 public:
  absl::Status Next(const JournalRecord& record) {
    const bool is_start = std::holds_alternative<RunStarted>(record);
    if (first_ != is_start) {
      return absl::InvalidArgumentError(first_ ? "the first record must be run_started"
                                               : "run_started must be the first record");
    }
    first_ = false;
    if (const auto* resumed = std::get_if<RunResumed>(&record)) return Resume(*resumed);
    if (const auto* recovered = std::get_if<Recovered>(&record)) return Recover(*recovered);
    if (const auto* plan = std::get_if<PlanDecided>(&record)) return Plan(*plan);
    if (const auto* changed = std::get_if<TrainingChanged>(&record)) return Change(changed->change);
    if (const auto* barrier = std::get_if<BarrierPassed>(&record)) return Step(barrier->step);
    return absl::OkStatus();
  }

 private:
  absl::Status Resume(const RunResumed& resumed) {
    if (resumed.step < 0) return absl::InvalidArgumentError("step is below 0");
    step_ = resumed.step;
    generation_ = Generation(-1);  // the workers are new too
    DropChangesAfter(resumed.step, changes_);
    return absl::OkStatus();
  }
  // Generations go on: survivors know those that were.
  absl::Status Recover(const Recovered& recovered) {
    if (recovered.step < 0 || recovered.step > step_) {
      return absl::InvalidArgumentError(
          absl::StrCat("recovered at step ", recovered.step, ", the run was at ", step_));
    }
    step_ = recovered.step;
    DropChangesAfter(recovered.step, changes_);
    return absl::OkStatus();
  }
  absl::Status Plan(const PlanDecided& decided) {
    RUNNEL_RETURN_IF_ERROR(Step(decided.from_step));
    if (decided.plan.generation <= generation_) {
      return absl::InvalidArgumentError(absl::StrCat("generation ", decided.plan.generation.value(),
                                                     " follows ", generation_.value()));
    }
    generation_ = decided.plan.generation;
    return absl::OkStatus();
  }
  absl::Status Change(const TrainingChange& change) {
    const TrainingChange* last = LastChange(changes_, change.dial);
    if (last != nullptr && change.from_step <= last->from_step) {
      return absl::InvalidArgumentError(absl::StrCat("a change at step ", change.from_step,
                                                     " follows one at step ", last->from_step));
    }
    changes_.push_back(change);
    return Step(change.from_step);
  }
  absl::Status Step(int64_t step) {
    if (step < step_) {
      return absl::InvalidArgumentError(absl::StrCat("step ", step, " follows step ", step_));
    }
    step_ = step;
    return absl::OkStatus();
  }

  bool first_ = true;
  int64_t step_ = 0;
  std::vector<TrainingChange> changes_;  // of the training, that are not void
  Generation generation_{-1};
};

absl::Status At(const std::string& path, int64_t line, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(path, ":", line, ": ", status.message()));
}

// Records that must be on the disk before what they say takes effect or is told to anybody.
bool NeedsFlush(const JournalRecord& record) {
  return !std::holds_alternative<EvaluationRecorded>(record) &&
         !std::holds_alternative<SubModelsMeasured>(record) &&
         !std::holds_alternative<WorkerLost>(record);
}

// Two centrals would write into each other's lines.
absl::Status LockJournal(int fd, const std::string& path) {
  absl::Status status = LockOpenFile(fd, path);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("journal ", status.message()));
}

absl::StatusOr<int64_t> SizeOf(int fd, const std::string& path) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return FileError("read the size of", path, errno);
  return static_cast<int64_t>(info.st_size);
}

}  // namespace

absl::StatusOr<Journal> ReadJournal(const std::string& path) {
  RUNNEL_ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(path, kMaxJournalBytes));
  Journal journal;
  OrderCheck order;
  absl::string_view rest = content;
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    if (end == absl::string_view::npos) {
      journal.torn_line = absl::StrCat(path, ":", number, ": the last line has no end (",
                                       rest.size(), " bytes); it is left out");
      break;
    }
    absl::StatusOr<JournalRecord> record = ParseJournalLine(rest.substr(0, end));
    if (!record.ok()) return At(path, number, record.status());
    if (absl::Status status = order.Next(*record); !status.ok()) return At(path, number, status);
    journal.records.push_back(*std::move(record));
    rest.remove_prefix(end + 1);
  }
  if (journal.records.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ":1: holds no record"));
  }
  return journal;
}

absl::StatusOr<JournalWriter> JournalWriter::Create(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return FileError("open", path, errno);
  JournalWriter writer(path, fd);
  RUNNEL_RETURN_IF_ERROR(LockJournal(fd, path));
  RUNNEL_ASSIGN_OR_RETURN(const int64_t size, SizeOf(fd, path));
  if (size > 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("journal ", path, " already holds a run: name another file"));
  }
  RUNNEL_RETURN_IF_ERROR(FlushFolderOf(path));
  return writer;
}

absl::StatusOr<JournalWriter> JournalWriter::Continue(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return FileError("open", path, errno);
  JournalWriter writer(path, fd);
  RUNNEL_RETURN_IF_ERROR(LockJournal(fd, path));
  RUNNEL_RETURN_IF_ERROR(ReadJournal(path).status());
  RUNNEL_ASSIGN_OR_RETURN(const std::string content, ReadWholeFile(path, kMaxJournalBytes));
  const size_t whole = content.rfind('\n') + 1;
  if (whole < content.size() && ftruncate(fd, static_cast<off_t>(whole)) != 0) {
    return FileError("cut the torn line off", path, errno);
  }
  return writer;
}

JournalWriter::JournalWriter(JournalWriter&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      broken_(std::move(other.broken_)) {}

JournalWriter& JournalWriter::operator=(JournalWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(broken_, other.broken_);
  return *this;
}

JournalWriter::~JournalWriter() {
  if (fd_ >= 0) close(fd_);
}

absl::Status JournalWriter::Append(const JournalRecord& record) {
  RUNNEL_RETURN_IF_ERROR(broken_);
  RUNNEL_ASSIGN_OR_RETURN(const int64_t size, SizeOf(fd_, path_));
  if (absl::Status status = WriteAll(fd_, JournalLine(record) + "\n", path_); !status.ok()) {
    return Undo(size, std::move(status));
  }
  // EINVAL, EROFS: something that has no disk behind it, like /dev/null.
  if (NeedsFlush(record) && fdatasync(fd_) != 0 && errno != EINVAL && errno != EROFS) {
    broken_ = FileError("flush", path_, errno);
    return broken_;
  }
  return absl::OkStatus();
}

absl::Status JournalWriter::Undo(int64_t size, absl::Status cause) {
  if (ftruncate(fd_, static_cast<off_t>(size)) != 0) broken_ = cause;
  return cause;
}

}  // namespace runnel
