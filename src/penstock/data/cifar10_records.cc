#include "penstock/data/cifar10_records.h"

#include "penstock/base/error.h"

namespace penstock {

std::size_t count_cifar10_records(std::span<const std::uint8_t> file, const std::string& name) {
  const std::size_t count = file.size() / Cifar10Record::bytes;
  require<DataError>(!file.empty(), "'", name, "' has no records: it is empty");
  require<DataError>(file.size() % Cifar10Record::bytes == 0, "'", name, "' has ", file.size(), " bytes, which is ",
                     count, " records of ", Cifar10Record::bytes, " and ", file.size() % Cifar10Record::bytes,
                     " bytes more: the copy is incomplete, fetch it again");
  for (std::size_t record = 0; record < count; ++record) {
    const int label = file[record * Cifar10Record::bytes];
    require<DataError>(label < Cifar10Record::classes, "'", name, "' says that sample ", record, " is of class ", label,
                       ": classes are below ", Cifar10Record::classes);
  }
  return count;
}

}  // namespace penstock
