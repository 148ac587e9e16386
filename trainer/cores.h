#pragma once
// How many cores this process may use: its affinity mask, cut by the cgroup's quota where there is one.
namespace tutti::trainer {

int usable_cores();

}  // namespace tutti::trainer
