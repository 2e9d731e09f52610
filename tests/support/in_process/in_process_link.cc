#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/support/in_process/in_process.h"

namespace runnel {
namespace {

// Streams of draws of one connection: its two directions and its life.
constexpr uint64_t kStreams = 3;
constexpr uint64_t kLifeStream = 2;

// With a byte that is not what was sent.
void Damage(Frame& frame) {
  if (frame.payload.empty()) {
    frame.header.payload_crc ^= 1;
    return;
  }
  frame.payload = Payload::CopyOf(frame.payload.bytes());
  frame.payload.mutable_bytes().back() ^= std::byte{1};
}

CounterRandom StreamOf(const InProcessFaults& faults, uint64_t index, uint64_t stream) {
  return CounterRandom(faults.seed, RandomPurpose::kNetworkSimulation, index * kStreams + stream,
                       0);
}

int64_t BytesOf(const Frame& frame) {
  return kFrameHeaderBytes + static_cast<int64_t>(frame.payload.size());
}

int64_t Draw(const CounterRandom& random, uint64_t element, int64_t min, int64_t max) {
  if (max <= min) return min;
  const double unit = static_cast<double>(random.Bits(element)) * 0x1p-32;
  return min + static_cast<int64_t>(unit * static_cast<double>(max - min));
}

}  // namespace

InProcessLink::InProcessLink(std::shared_ptr<Scheduler> scheduler, const InProcessFaults& faults,
                             std::shared_ptr<const InProcessPaths> paths, uint64_t index,
                             std::array<std::string, 2> nodes)
    : scheduler_(std::move(scheduler)),
      faults_(faults),
      paths_(std::move(paths)),
      index_(index),
      nodes_(std::move(nodes)),
      ends_{End(StreamOf(faults, index, 0)), End(StreamOf(faults, index, 1))} {}

bool InProcessLink::Attach(int end, ConnectionObserver* observer, const LinkShaping& shaping) {
  std::unique_lock<std::mutex> lock(mutex_);
  End& self = ends_[end];
  if (self.released) return false;
  self.gate = std::make_shared<ObserverGate>(observer);
  self.pacer = Pacer(shaping);
  if (dead_) {
    const std::shared_ptr<ObserverGate> gate = self.gate;
    lock.unlock();
    gate->Closed(absl::UnavailableError("connection: broken before it was accepted"));
    return true;
  }
  for (const Frame& frame : std::exchange(self.waiting, {})) Queue(end, frame);
  if (self.state == State::kClosing) {
    self.state = State::kOpen;
    lock.unlock();
    Close(end);
  }
  return true;
}

void InProcessLink::EstablishAt(int64_t time_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  ends_[0].last_arrival_ns = time_ns;
  if (faults_.max_life_ns == 0) return;
  const CounterRandom random = StreamOf(faults_, index_, kLifeStream);
  const int64_t life_ns = Draw(random, 0, faults_.min_life_ns, faults_.max_life_ns);
  const int first = static_cast<int>(random.Below(1, 2));
  scheduler_->ScheduleAt(time_ns + life_ns, [self = shared_from_this(), first] {
    self->Break(first, absl::UnavailableError("connection: lost by the network"));
  });
}

absl::Status InProcessLink::Send(int end, const Frame& frame) {
  std::lock_guard<std::mutex> lock(mutex_);
  End& self = ends_[end];
  if (dead_ || self.state != State::kOpen) {
    return absl::UnavailableError("connection: closed, the frame is not sent");
  }
  if (self.gate == nullptr) {
    self.waiting.push_back(frame);
  } else {
    Queue(end, frame);
  }
  return absl::OkStatus();
}

int64_t InProcessLink::ArrivalOf(End& sender, int64_t arrive_ns) {
  const int64_t delay_ns =
      Draw(sender.random, sender.draws++, faults_.min_delay_ns, faults_.max_delay_ns);
  sender.last_arrival_ns = std::max(sender.last_arrival_ns, arrive_ns + delay_ns);
  return sender.last_arrival_ns;
}

int64_t InProcessLink::ArrivalOf(End& sender, FrameKind kind, int64_t arrive_ns) {
  const int64_t arrival_ns = ArrivalOf(sender, arrive_ns);
  if (kind != FrameKind::kReplica || faults_.max_replica_ns == 0) return arrival_ns;
  const int64_t longer_ns = Draw(sender.random, sender.draws++, 0, faults_.max_replica_ns);
  sender.last_replica_ns = std::max(sender.last_replica_ns, arrival_ns + longer_ns);
  return sender.last_replica_ns;
}

void InProcessLink::Queue(int end, const Frame& frame) {
  End& self = ends_[end];
  const int64_t bytes = BytesOf(frame);
  const int64_t now_ns = scheduler_->NowNanos();
  const Pacer::Times times = self.pacer.Schedule(now_ns, bytes);
  if (times.leave_ns > now_ns) {
    self.queued_bytes += bytes;
    scheduler_->ScheduleAt(times.leave_ns, [self = shared_from_this(), end, bytes] {
      std::lock_guard<std::mutex> lock(self->mutex_);
      if (!self->dead_) self->ends_[end].queued_bytes -= bytes;
    });
  }
  Frame arriving = frame;
  arriving.arrival = {bytes, times.leave_ns - times.begin_ns};
  const int64_t arrival_ns = ArrivalOf(self, frame.header.kind, times.arrive_ns);
  if (faults_.damage_one_in > 0 && self.random.Below(self.draws++, faults_.damage_one_in) == 0)
    Damage(arriving);
  scheduler_->ScheduleAt(
      arrival_ns, [self = shared_from_this(), end, arriving = std::move(arriving)]() mutable {
        self->Pass(1 - end, [link = self.get(), end, arriving = std::move(arriving)] {
          link->Arrive(1 - end, arriving);
        });
      });
}

void InProcessLink::Pass(int to, std::function<void()> what) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!passes() || !ends_[to].held.empty()) {
      ends_[to].held.push_back(std::move(what));
      return;
    }
  }
  what();
}

void InProcessLink::Flush() {
  for (End& end : ends_) {
    std::vector<std::function<void()>> held;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!passes()) return;
      held.swap(end.held);
    }
    for (const auto& what : held) what();
  }
}

void InProcessLink::Arrive(int to, Frame frame) {
  std::shared_ptr<ObserverGate> gate;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (dead_ || ends_[to].released) return;
    gate = ends_[to].gate;
  }
  absl::Status status = gate->Header(frame.header);
  if (status.ok()) status = CheckPayload(frame.header, frame.payload.bytes());
  if (!status.ok()) return Fail(to, status);
  gate->Deliver(std::move(frame));
}

void InProcessLink::Fail(int to, const absl::Status& status) {
  std::shared_ptr<ObserverGate> gate;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // Let go of while the frame came in: its owner wants no more, the orderly end goes on.
    if (ends_[to].released || !Kill()) return;
    gate = ends_[to].gate;
    ScheduleClosed(
        1 - to, ArrivalOf(ends_[to], scheduler_->NowNanos()),
        absl::UnavailableError(absl::StrCat("connection: the peer closed it: ", status.message())));
  }
  gate->Closed(status);
}

void InProcessLink::Close(int end) {
  std::lock_guard<std::mutex> lock(mutex_);
  End& self = ends_[end];
  if (dead_ || self.state != State::kOpen) return;
  self.state = State::kClosing;
  if (self.gate == nullptr) return;  // Attach goes on
  const Pacer::Times times = self.pacer.Schedule(scheduler_->NowNanos(), 0);
  scheduler_->ScheduleAt(ArrivalOf(self, times.arrive_ns), [self = shared_from_this(), end] {
    self->Pass(1 - end, [link = self.get(), end] { link->EndOfStream(1 - end); });
  });
}

void InProcessLink::EndOfStream(int to) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (dead_) return;
    End& self = ends_[to];
    // What this end has sent still arrives, then its consent. If it is closing too, its own end of
    // stream says that.
    if (self.state == State::kOpen) {
      ScheduleClosed(1 - to, ArrivalOf(self, scheduler_->NowNanos()), absl::OkStatus());
    }
    self.state = State::kClosed;
  }
  Tell(to, absl::OkStatus());
}

int64_t InProcessLink::queued_bytes(int end) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (dead_) return 0;
  int64_t bytes = ends_[end].queued_bytes;
  for (const Frame& frame : ends_[end].waiting) bytes += BytesOf(frame);
  return bytes;
}

void InProcessLink::Release(int end) {
  std::shared_ptr<ObserverGate> gate;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_[end].released = true;
    gate = ends_[end].gate;
    if (ends_[end].state == State::kOpen && Kill()) {
      ScheduleClosed(1 - end, ArrivalOf(ends_[end], scheduler_->NowNanos()),
                     absl::UnavailableError("connection: the peer let go of it"));
    }
  }
  if (gate != nullptr) gate->Closed(absl::OkStatus());
}

void InProcessLink::Abort(int end) {
  std::shared_ptr<ObserverGate> gate;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    gate = ends_[end].gate;
    if (Kill()) {
      ScheduleClosed(1 - end, ArrivalOf(ends_[end], scheduler_->NowNanos()),
                     absl::UnavailableError("connection: the peer stopped listening"));
    }
  }
  if (gate != nullptr) gate->Closed(absl::OkStatus());
}

void InProcessLink::Break(int first, const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!Kill()) return;
    ScheduleClosed(1 - first, ArrivalOf(ends_[first], scheduler_->NowNanos()), status);
  }
  Tell(first, status);
}

void InProcessLink::BreakAtOnce(const absl::Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Kill();
  }
  Tell(0, status);
  Tell(1, status);
}

bool InProcessLink::Kill() {
  if (dead_) return false;
  dead_ = true;
  for (End& end : ends_) end.waiting.clear();
  return true;
}

void InProcessLink::ScheduleClosed(int end, int64_t time_ns, absl::Status status) {
  scheduler_->ScheduleAt(time_ns, [self = shared_from_this(), end, status] {
    self->Pass(end, [link = self.get(), end, status] { link->Tell(end, status); });
  });
}

void InProcessLink::Tell(int end, const absl::Status& status) {
  std::shared_ptr<ObserverGate> gate;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    gate = ends_[end].gate;
  }
  if (gate != nullptr) gate->Closed(status);
}

}  // namespace runnel
