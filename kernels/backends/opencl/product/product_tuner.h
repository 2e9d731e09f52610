#pragma once

// Searches the tile of each class of products by trying them on the device.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backends/opencl/device/session.h"
#include "kernels/backends/opencl/product/lone_product.h"
#include "kernels/backends/opencl/product/product_plan.h"
#include "kernels/backends/tuner.h"
#include "proto/base/clock.h"

namespace runnel::opencl {

class ProductTuner final : public Tuner {
 public:
  // options: of the session whose device this is. Searches have a session of their own, so that a
  // tile that the driver fails at loses no stage its device. Their buffers count against `budget`.
  ProductTuner(Options options, DeviceInfo device, std::shared_ptr<DeviceBudget> budget,
               std::shared_ptr<const Clock> clock = std::make_shared<MonotonicClock>())
      : options_(std::move(options)),
        device_(std::move(device)),
        budget_(std::move(budget)),
        clock_(std::move(clock)) {
    LoadHungTiles();
  }

  // Tiles that a search tries of each class whatever the time, unless it lasts kPatience times as
  // long as it was given.
  static constexpr int kLeastTiles = 8;
  static constexpr double kPatience = 30;

  TuningSubject subject() const override;
  double usual_seconds() const override;
  std::vector<TuningChoice> choices() const override;
  int Adopt(const std::vector<TuningChoice>& kept, bool is_checked) override;
  void BeginSearch(double seconds, bool anew, Backend* specification) override;
  void EndSearch() override { left_seconds_ = 0; }

  // If there is time left: searches the classes of the program. Nothing that goes wrong here is an
  // error: the rule's tile stays.
  void Search(const Program& program);
  // The choices for Session::chosen_tiles.
  ChosenTiles tiles() const;
  // For Session::hung_tiles: those that hung before the last BeginSearch.
  const std::set<Tile>& hung_tiles() const { return hung_tiles_; }

 private:
  // A product that tiles are tried on.
  struct Bench {
    std::shared_ptr<Session> session;
    std::unique_ptr<Backend> backend;
  };
  struct Sample {
    std::vector<std::byte> bytes;
    double seconds = 0;
  };
  struct Candidate {
    Instruction instruction;
    ProductPlan plan;
    int uses = 0;
  };

  std::vector<Candidate> CandidatesOf(const Program& program) const;
  void SearchClass(const Program& program, const Candidate& candidate);
  // What a product of the tuner's specification gives.
  absl::StatusOr<std::vector<std::byte>> Expected(const LoneProduct& product, bool magnitudes);
  // OK: the tile computes the small product as expected.
  absl::Status CheckSmall(const LoneProduct& small, const ProductPlan& plan, const Tile& tile);
  absl::StatusOr<Sample> RunTile(const LoneProduct& product, Memory& operands, const Tile& tile,
                                 int timed_runs);
  // What the tiles that hung are kept under, in Options::programs.
  std::string HungSubject() const;
  void LoadHungTiles();
  // The bench's session, opened anew if a tile has lost its device.
  absl::Status OpenBench();
  std::vector<Tile> TilesFor(const ProductPlan& plan) const;
  // The rule's tile, or a smaller one where that fails; none: all of them fail.
  std::optional<Tile> FirstTileOf(const ProductPlan& plan) const;

  const Options options_;
  const DeviceInfo device_;
  const std::shared_ptr<DeviceBudget> budget_;
  const std::shared_ptr<const Clock> clock_;
  std::map<std::string, TuningChoice> choices_;  // by class
  std::map<std::string, Tile> hints_;            // hints of other devices
  std::set<Tile> failing_;                       // tiles that cost a session, or hung
  std::set<Tile> hung_tiles_;                    // of failing_, before this start
  std::string hung_;                             // their texts, a line each
  std::set<std::string> searched_;               // since BeginSearch
  Bench bench_;
  Backend* specification_ = nullptr;  // of the search that is on
  int64_t end_nanos_ = 0;             // of the time for the class that is searched
  int64_t last_nanos_ = 0;            // of the search, when its patience ends
  double left_seconds_ = 0;
  bool anew_ = false;
};

}  // namespace runnel::opencl
