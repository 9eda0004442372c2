-- Coroutines, a child, files.
local function numbers() for i = 1, 1000 do coroutine.yield(i) end end
local sum = 0
for i in coroutine.wrap(numbers) do sum = sum + i end
print(sum)
local child = io.popen('printf "a\\nb\\n" | sort -r; exit 3')
print((child:read('a'):gsub('\n', ' ')))
print(select(3, child:close()))
local name = os.tmpname()
local f = assert(io.open(name, 'w')); f:write('kept'); f:close()
print(io.open(name):read('a'), os.remove(name))
