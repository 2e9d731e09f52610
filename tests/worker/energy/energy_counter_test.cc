// What the kernel shows of energy, from files made for the test.

#include "worker/energy/energy_counter.h"

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "tests/support/scratch.h"
#include "worker/energy/training_use.h"

namespace runnel::energy_counter_test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class FakeKernel {
 public:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file = dir_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  void Remove(const std::string& path) const { std::filesystem::remove(dir_ / path); }
  std::string root() const { return dir_ / ""; }
  std::unique_ptr<EnergyCounter> Find() const { return EnergyCounter::Find(root()); }

  void WriteBattery(const std::string& status, int64_t microamperes) const {
    const std::string folder = "sys/class/power_supply/battery/";
    Write(folder + "type", "Battery");
    Write(folder + "status", status);
    Write(folder + "voltage_now", "4000000");
    Write(folder + "current_now", std::to_string(microamperes));
  }
  void WriteRapl(const std::string& zone, const std::string& name, int64_t microjoules) const {
    const std::string folder = "sys/class/powercap/" + zone + "/";
    Write(folder + "name", name);
    Write(folder + "max_energy_range_uj", "262143328850");
    Write(folder + "energy_uj", std::to_string(microjoules));
  }

 private:
  ScratchDir dir_;
};

TEST(EnergyCounter, WhereTheKernelShowsNothingThereIsNone) {
  const FakeKernel kernel;
  EXPECT_EQ(kernel.Find(), nullptr);
}

TEST(EnergyCounter, RaplCountsPackagesAndMemoryOnce) {
  const FakeKernel kernel;
  kernel.WriteRapl("intel-rapl:0", "package-0", 1'000'000);
  kernel.WriteRapl("intel-rapl:0:0", "core", 500'000);  // a part of the package
  kernel.WriteRapl("intel-rapl:0:1", "dram", 100'000);
  kernel.WriteRapl("intel-rapl:1", "psys", 9'000'000);
  const auto counter = kernel.Find();
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(counter->source(), EnergySource::kRapl);
  kernel.WriteRapl("intel-rapl:0", "package-0", 3'000'000);
  kernel.WriteRapl("intel-rapl:0:0", "core", 1'500'000);
  kernel.WriteRapl("intel-rapl:0:1", "dram", 600'000);
  EXPECT_DOUBLE_EQ(*counter->Take(0), 2.5);
  EXPECT_DOUBLE_EQ(*counter->Take(0), 0);
}

TEST(EnergyCounter, ACounterThatBeginsAgainLosesNothing) {
  const FakeKernel kernel;
  kernel.WriteRapl("intel-rapl:0", "package-0", 262143328850 - 1'000'000);
  const auto counter = kernel.Find();
  ASSERT_NE(counter, nullptr);
  kernel.WriteRapl("intel-rapl:0", "package-0", 500'000);
  EXPECT_DOUBLE_EQ(*counter->Take(0), 1.5);
}

TEST(EnergyCounter, AFileThatIsGoneIsNotZero) {
  const FakeKernel kernel;
  kernel.WriteRapl("intel-rapl:0", "package-0", 1);
  const auto counter = kernel.Find();
  ASSERT_NE(counter, nullptr);
  kernel.Remove("sys/class/powercap/intel-rapl:0/energy_uj");
  EXPECT_FALSE(counter->Take(0).has_value());
}

TEST(EnergyCounter, OfABoardsRailsTheSupplyCounts) {
  const FakeKernel kernel;
  kernel.Write("sys/class/hwmon/hwmon0/power1_input", "2000000");
  kernel.Write("sys/class/hwmon/hwmon0/power2_input", "5000000");
  kernel.Write("sys/class/hwmon/hwmon1/temp1_input", "45000000");
  const auto counter = kernel.Find();
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(counter->source(), EnergySource::kHwmon);
  EXPECT_DOUBLE_EQ(*counter->Take(10 * kSecond), 0) << "the first reading begins the integral";
  kernel.Write("sys/class/hwmon/hwmon0/power2_input", "7000000");
  EXPECT_DOUBLE_EQ(*counter->Take(12 * kSecond), 12);  // 6 W for 2 s
}

TEST(EnergyCounter, ABatteryTellsWhileItIsNotCharged) {
  const FakeKernel kernel;
  kernel.WriteBattery("Discharging", -500'000);  // 2 W
  const auto counter = kernel.Find();
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(counter->source(), EnergySource::kBattery);
  counter->Take(0);
  EXPECT_DOUBLE_EQ(*counter->Take(3 * kSecond), 6);
  kernel.WriteBattery("Charging", 500'000);
  EXPECT_FALSE(counter->Take(4 * kSecond).has_value());
  EXPECT_EQ(kernel.Find(), nullptr);
}

// Of what a device uses a process gets its share of the processor time.
TEST(TrainingUse, WithoutACounterTheModelSpeaks) {
  TrainingUse use(nullptr, 0.5, Sequence(10));
  use.Resume(0);
  Telemetry telemetry;
  telemetry.backwards = 14;
  use.Fill(kSecond, telemetry);
  EXPECT_DOUBLE_EQ(telemetry.joules, 2);
  EXPECT_EQ(telemetry.energy_source, EnergySource::kModel);
  EXPECT_GT(telemetry.processor_ns, 0);
}

TEST(TrainingUse, CountsOnlyBetweenGrantsAndBarriers) {
  const FakeKernel kernel;
  kernel.WriteRapl("intel-rapl:0", "package-0", 0);
  const auto counter = kernel.Find();
  TrainingUse use(counter.get(), 0.5, Sequence(0), kernel.root());  // no /proc/stat: all of it
  kernel.WriteRapl("intel-rapl:0", "package-0", 7'000'000);
  use.Resume(0);
  kernel.WriteRapl("intel-rapl:0", "package-0", 9'000'000);
  use.Pause(kSecond);
  kernel.WriteRapl("intel-rapl:0", "package-0", 20'000'000);
  use.Resume(2 * kSecond);
  kernel.WriteRapl("intel-rapl:0", "package-0", 21'000'000);
  Telemetry telemetry;
  use.Fill(3 * kSecond, telemetry);
  EXPECT_DOUBLE_EQ(telemetry.joules, 3);
  EXPECT_EQ(telemetry.energy_source, EnergySource::kRapl);
}

TEST(TrainingUse, AProcessThatHardlyComputesGetsHardlyAnything) {
  const FakeKernel kernel;
  kernel.WriteRapl("intel-rapl:0", "package-0", 0);
  kernel.Write("proc/stat", "cpu 1000 0 0 5000 0 0 0 0");
  EXPECT_GT(DeviceProcessorNs(kernel.root()), 0);
  const auto counter = kernel.Find();
  TrainingUse use(counter.get(), 0.5, Sequence(0), kernel.root());
  use.Resume(0);
  kernel.WriteRapl("intel-rapl:0", "package-0", 100'000'000);
  kernel.Write("proc/stat", "cpu 1001000 0 0 9000 0 0 0 0");  // 10,000 s of processor time
  use.Pause(kSecond);
  Telemetry telemetry;
  use.Fill(2 * kSecond, telemetry);
  EXPECT_LT(telemetry.joules, 1) << "of 100 J";
}

TEST(TrainingUse, ACounterThatFellSilentIsReplacedByTheModel) {
  const FakeKernel kernel;
  kernel.WriteBattery("Discharging", 500'000);
  const auto counter = kernel.Find();
  TrainingUse use(counter.get(), 0.5, Sequence(0), kernel.root());
  use.Resume(0);
  kernel.WriteBattery("Charging", 500'000);
  use.Pause(kSecond);
  Telemetry telemetry;
  telemetry.backwards = 2;
  use.Fill(2 * kSecond, telemetry);
  EXPECT_EQ(telemetry.energy_source, EnergySource::kModel);
  EXPECT_DOUBLE_EQ(telemetry.joules, 1);
}

}  // namespace
}  // namespace runnel::energy_counter_test
