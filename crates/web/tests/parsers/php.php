<?php
// Reads logins as PHP does. A line of input is one login, a line of output what it finds.

function all_of(array $values): array
{
    $found = $values['user'] ?? [];
    return is_array($found) ? array_map('json_encode', array_values($found)) : [$found];
}

while (($line = fgets(STDIN)) !== false) {
    $login = json_decode($line, true);
    $body = hex2bin($login['body']);
    parse_str($login['query'], $query);
    if (str_contains($login['type'], 'json')) {
        $members = json_decode($body, true);
        $found = is_array($members) && isset($members['user']) ? [strval($members['user'])] : [];
    } else {
        parse_str($body, $members);
        $found = all_of($members);
    }
    echo json_encode(['PHP' => array_merge(all_of($query), $found)]), "\n";
}
