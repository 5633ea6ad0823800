// How a kernel of any signature is called from an array of pointers to its arguments, as
// cuLaunchKernel does.
#pragma once
#include <string>
#include <utility>

#include "internal.h"

struct __half;

namespace emulation {

// A type as NumPy writes it: kind and size, a struct being V for void. A pointer carries the type
// that it points to.
template <typename T>
struct Code {
    static std::string text() {
        using U = typename std::remove_cv<T>::type;
        const char kind = std::is_same<U, bool>::value       ? 'b'
                          : std::is_same<U, __half>::value   ? 'f'
                          : std::is_floating_point<U>::value ? 'f'
                          : std::is_unsigned<U>::value       ? 'u'
                          : std::is_integral<U>::value       ? 'i'
                                                             : 'V';
        return kind + std::to_string(sizeof(U));
    }
};
template <typename T>
struct Code<T *> {
    static std::string text() {
        return (std::is_const<T>::value ? "in:" : "out:") + Code<T>::text();
    }
};

template <typename... Parameters>
struct Caller {
    using Function = void (*)(Parameters...);

    template <std::size_t... I>
    __attribute__((no_sanitize("thread"), no_sanitize("undefined"))) static void unpack(
        Function function, void **arguments, std::index_sequence<I...>) {
        function(*static_cast<typename std::remove_reference<Parameters>::type *>(arguments[I])...);
    }
    __attribute__((no_sanitize("thread"), no_sanitize("undefined"))) static void call(
        void (*function)(), void **arguments) {
        unpack(reinterpret_cast<Function>(function), arguments,
               std::index_sequence_for<Parameters...>());
    }
    static const char *signature() {
        static const std::string text = [] {
            std::string codes;
            ((codes += Code<Parameters>::text() + " "), ...);
            return codes;
        }();
        return text.c_str();
    }
};

template <typename... Parameters>
Kernel kernel(const char *name, void (*function)(Parameters...)) {
    using Its = Caller<Parameters...>;
    return {name, reinterpret_cast<void (*)()>(function), Its::call, Its::signature};
}

}  // namespace emulation
